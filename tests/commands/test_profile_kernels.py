"""The name of a kernel shows its kind, whoever wrote it."""

from __future__ import annotations

import pytest

from noise2text.commands.profile_kernels import OTHERS, classify_kernel, sum_by_kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_tst_192x192_64x3_1x2_h_bz_coopB_bias_TNN", "products"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_nn_align2>",
            "products",
        ),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "products"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(...)", "attention"),
        ("triton_red_fused__to_copy_add_amax_arange_eq_exp_log_mean_slice_sub_sum_where_0", "vocabulary"),
        ("triton_poi_fused_add_arange_div_eq_exp_expand_mul_neg_scalar_tensor_1", "vocabulary"),
        ("triton_per_fused__to_copy_add_native_dropout_native_layer_norm_0", "norms"),
        ("triton_per_fused___rshift____to_copy_add_arange_bitwise_and_bitwise_xor_div_ge_mul_0", "norms"),
        ("triton_poi_fused___rshift____to_copy_add_arange_bitwise_and_bitwise_xor_cos_log_0", "noise"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", "activations"),
        ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>", "sums"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimizer"),
        ("Memset (Device)", "copies"),
        ("aten::addmm", "products"),
        ("aten::gather", "vocabulary"),
        ("_vocabulary_loss", "vocabulary"),
        ("_vocabulary_gradient", "vocabulary"),
        ("_column_sums", "sums"),
        ("_activated_back", "activations"),
        ("_add_norm_back", "norms"),
        ("something new", OTHERS),
    ],
)
def test_a_kernel_is_classified_by_its_name(name: str, expected: str) -> None:
    assert classify_kernel(name) == expected


def test_kinds_add_up_the_longest_first() -> None:
    found = sum_by_kind({"aten::mm": 1.0, "aten::gelu": 3.0, "aten::bmm": 1.5})
    assert found == {"activations": 3.0, "products": 2.5}
    assert list(found) == ["activations", "products"]
