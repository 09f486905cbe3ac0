"""From a problem to tokens, and from tokens to what was said: vocabulary, tokenizer, templates, prompts, answers."""
