/* Large products of prefill with OpenBLAS. The library is loaded at run time,
 * which takes tens of milliseconds, so callers load it only if they need it. */
#ifndef KERNEL_GEMM_H
#define KERNEL_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/kernel.h"

/* Load OpenBLAS. The first call sets OPENBLAS_CORETYPE to tune.blas_coretype of
 * k, unless the user has set that variable, because release 0.3.21 misdetects
 * recent CPUs. Later calls change nothing. Returns whether the library is
 * loaded. Loading changes the environment: no other thread may read or write it
 * then. Call this outside of parallel regions. */
bool gemm_blas_load(const struct kernels *k);

/* Return whether the library is loaded. Any thread may ask. */
bool gemm_blas_loaded(void);

/* Compute C[m, n] = A[m, k] * B[n, k]^T in f32, row-major, with lda, ldb and
 * ldc floats from row to row; all sizes fit an int. Runs on the calling thread
 * only: callers divide the work themselves. Call it only after gemm_blas_load
 * returned true. */
void gemm_blas_nt(float *c, size_t ldc, const float *a, size_t lda,
                  const float *b, size_t ldb, size_t m, size_t n, size_t k);

#endif
