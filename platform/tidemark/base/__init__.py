"""What every room rests on: errors, settings, instants."""
