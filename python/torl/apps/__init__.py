"""Programs around training that nothing trains with: the audit, evaluations, curation and the grader's server."""
