"""The mathematics of the update: advantage estimators, losses, aggregations. Pure functions of arrays. No torch."""
