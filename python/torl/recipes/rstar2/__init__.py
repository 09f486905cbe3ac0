"""rStar2: GRPO-RoC, which samples more responses than it learns from. torl has all parts built in."""
