"""Operations behind the page Explore."""
