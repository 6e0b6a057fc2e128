"""What a shell completes, and the script that has it do so."""
