"""The pure part of judging: from the values of an expression to phases, transitions and episodes.

``automaton`` steps one instance, ``conditions`` turns values into inputs, ``versions`` says which content of a rule is
in force at a step, ``run`` folds many steps of many instances, ``reconciliation`` brings episodes in step with what a
run says, and ``lane_plan`` chooses the steps to judge. Nothing here reads a clock, the database or the store.
"""
