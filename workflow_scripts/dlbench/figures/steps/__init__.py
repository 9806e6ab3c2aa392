"""How long steps take, and what rules that."""
