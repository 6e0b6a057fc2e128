"""What a word or an option that no command knows may mean."""
