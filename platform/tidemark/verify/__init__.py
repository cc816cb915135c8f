"""Is what was published what it should be?"""
