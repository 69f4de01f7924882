/* Large products of prefill through BLAS. The library is loaded on first use,
 * so that one-token runs and --help never pay for it. */
#ifndef KERNEL_GEMM_H
#define KERNEL_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cpu.h"

/* Load OpenBLAS once, with OPENBLAS_CORETYPE set to what suits the level unless
 * the user set it: 0.3.21 misdetects recent CPUs. Later calls do not change it.
 * Returns whether it is there. Call it outside of any parallel region. */
bool gemm_blas_load(enum isa level);

/* C[m, n] = A[m, k] * B[n, k]^T, row-major, f32, single-threaded: callers
 * split the work themselves. Only after gemm_blas_load returned true. */
void gemm_blas_nt(float *c, size_t ldc, const float *a, size_t lda,
                  const float *b, size_t ldb, size_t m, size_t n, size_t k);

#endif
