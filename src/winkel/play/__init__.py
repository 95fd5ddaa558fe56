"""What a trained agent does and predicts: episodes, films, return distributions, maps of visits."""
