"""What a chart shows beside its lines, and the forms in which its columns travel."""
