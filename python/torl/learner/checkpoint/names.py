"""What ranks call things in their files."""

MODEL_PREFIX = "causal_lm."  # `Policy` puts it before every name of the Hugging Face model
POLICY_TAG = "deepspeed"
CRITIC_TAG = "critic"
