"""The paper's figures: for each, a function that makes its rows and one that draws them."""
