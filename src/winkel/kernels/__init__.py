"""PE-DQN's action choice and update as Pallas kernels for a GPU (decision 015).

`winkel.kernels.pe_dqn` has two functions, alternatives to parts of `winkel.agents.pe_dqn`:
`value_and_bonus` for one observation, and `update`. Importing it imports Triton; this does not.
`PEDQN.supported_by_kernels` says which configurations they compute.
"""
