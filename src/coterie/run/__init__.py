"""Operations on a team: training, evaluation, ablation and supervised training of a starter."""
