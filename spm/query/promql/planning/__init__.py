"""Tree to plan: types checked, calls resolved, frozen nodes that the evaluator walks."""
