"""The judge of histories: files, rules, search, and what each of them must find."""
