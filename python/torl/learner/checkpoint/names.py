"""What ranks call things in their files."""

MODEL_PREFIX = "causal_lm."  # `Policy` puts it before every name of the Hugging Face model
POLICY_TAG = "policy"
CRITIC_TAG = "critic"
METADATA = "torl"  # the entry of a shard's metadata that says what it holds (JSON)


def shard_name(tag: str, rank: int) -> str:
    """A rank's file of the state of one model."""
    return f"{tag}_rank_{rank:05d}.safetensors"


def shard_pattern(tag: str) -> str:
    """All ranks' files of it."""
    return f"{tag}_rank_*.safetensors"


def generators_name(rank: int) -> str:
    """A rank's file of the states of its random generators."""
    return f"generators_rank_{rank:05d}.pt"
