"""Commands that change or maintain existing tables."""
