"""How a decision's terms read, by family of scalers: the paper's symbols, units, inequalities and outcomes."""
