import torch

from elocution.grpo.tiles import TiledLayer, Walk, merge_softmax, softmax_parts


def test_legal_ids_without_a_gap_are_looked_at_in_place_and_others_copied() -> None:
    hidden, weight = torch.randn(3, 4), torch.randn(20, 4)
    ids = torch.tensor([2, 5, 6, 7, 8, 9, 10, 11, 12])  # a stop id apart from the block of codes
    walk = Walk.over((hidden, weight, None), legal_ids=ids, temperature=1.0, tile=(8, 4))
    assert [columns.places for columns in walk.columns] == [slice(0, 4), slice(4, 8), slice(8, 9)]
    layer = TiledLayer(hidden, weight, None, walk)
    tiles = [layer.tile(columns).weight for columns in walk.columns]
    assert torch.equal(torch.cat(tiles), weight[ids])
    inside = [tile.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr() for tile in tiles]
    assert inside == [False, True, True]


def test_a_softmax_put_together_from_tiles_is_that_of_the_whole() -> None:
    logits = 30 * torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits[0, 4:8] = -torch.inf  # a whole tile that cannot be drawn
    parts = [softmax_parts(part.clone()) for part in logits.split(4, dim=1)]
    merged = merge_softmax(torch.stack([top for top, _, _ in parts]), torch.stack([e.sum(1) for _, _, e in parts]))
    torch.testing.assert_close(merged.log_sum_exp, logits.logsumexp(dim=1))
    whole = torch.softmax(logits, dim=1)
    for share, (_, _, exps), probabilities in zip(merged.shares, parts, whole.split(4, dim=1), strict=True):
        torch.testing.assert_close(share[:, None] * exps, probabilities)
