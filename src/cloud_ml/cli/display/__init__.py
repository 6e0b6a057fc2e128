"""What commands print: tables, events, amounts, progress bars, the state of what is waited for."""
