"""The storage: keys and bytes, versions, rollup rows, the ledger, and the back ends."""
