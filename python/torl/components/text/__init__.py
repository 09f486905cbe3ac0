"""From a problem to tokens, and from tokens to text: templates, prompts, tokenizer, vocabulary, answers."""
