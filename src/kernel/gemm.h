/* Large products of prefill through BLAS. Loading the library takes tens of
 * milliseconds, which only those pay who need it. */
#ifndef KERNEL_GEMM_H
#define KERNEL_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/kernel.h"

/* Load OpenBLAS once, with OPENBLAS_CORETYPE set to the table's blas_coretype
 * unless the user set it: 0.3.21 misdetects recent CPUs. Later calls do not
 * change it. Returns whether it is there. Writes to the environment, so that no
 * other thread may use that meanwhile; call it outside of any parallel region.
 */
bool gemm_blas_load(const struct kernels *k);

/* Whether it has been loaded. */
bool gemm_blas_loaded(void);

/* C[m, n] = A[m, k] * B[n, k]^T, row-major, f32, single-threaded: callers
 * split the work themselves. Only after gemm_blas_load returned true. */
void gemm_blas_nt(float *c, size_t ldc, const float *a, size_t lda,
                  const float *b, size_t ldb, size_t m, size_t n, size_t k);

#endif
