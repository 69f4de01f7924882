/* FP8 numbers for the reference kernels. */
#ifndef KERNEL_REF_K_FP8_REF_H
#define KERNEL_REF_K_FP8_REF_H

/* The value of an E4M3 code, exactly. */
float fp8_value(unsigned char code);

#endif
