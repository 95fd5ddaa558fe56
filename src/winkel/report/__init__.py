"""From runs to one HTML page that says which of the paper's claims they reproduce."""
