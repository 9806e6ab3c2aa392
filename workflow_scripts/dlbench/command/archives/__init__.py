"""Commands about archives: written, verified, derived again."""
