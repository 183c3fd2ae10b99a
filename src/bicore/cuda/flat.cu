// Networks with a flatten read-out, a pair of images a block at a time. The two maps of a branch, Σ and then Θ, lie in shared
// memory, AREA numbers each; `network`, written for the architecture, calls the layers below in order.
//
// Given by the compiler's command line: AREA, CHANNELS, POSITIONS (of an image), NOTES (norms of an image), THREADS, DOUBLE.

__device__ __forceinline__ real* covariance(real* memory, int slot) { return memory + 2 * slot * AREA; }
__device__ __forceinline__ real* tangent(real* memory, int slot) { return memory + (2 * slot + 1) * AREA; }

#define EACH(i, count) for (int i = threadIdx.x; i < (count); i += THREADS)

// Sums over the window's rows: positions outside the image count zero.
template <int WINDOW, int STRIDE, int LOW, int HEIGHT, int WIDTH, int OUT>
__device__ __forceinline__ void down(real* memory, int from, int to) {
    const real *s = covariance(memory, from), *t = tangent(memory, from);
    real *s_out = covariance(memory, to), *t_out = tangent(memory, to);
    EACH(i, OUT * WIDTH) {
        const int top = i / WIDTH * STRIDE - LOW, x = i % WIDTH;
        real s_sum = 0, t_sum = 0;
#pragma unroll
        for (int k = 0; k < WINDOW; ++k) {
            const int y = top + k;
            if (y >= 0 && y < HEIGHT) {
                s_sum += s[y * WIDTH + x];
                t_sum += t[y * WIDTH + x];
            }
        }
        s_out[i] = s_sum;
        t_out[i] = t_sum;
    }
    __syncthreads();
}

// Sums over the window's columns, then the layer's weights and bias.
template <int WINDOW, int STRIDE, int LOW, int WIDTH, int HEIGHT, int OUT>
__device__ __forceinline__ void across(real* memory, int from, int to, real gain, real bias, bool trained) {
    const real *s = covariance(memory, from), *t = tangent(memory, from);
    real *s_out = covariance(memory, to), *t_out = tangent(memory, to);
    EACH(i, HEIGHT * OUT) {
        const int first = i % OUT * STRIDE - LOW, row = i / OUT * WIDTH;
        real s_sum = 0, t_sum = 0;
#pragma unroll
        for (int k = 0; k < WINDOW; ++k) {
            const int x = first + k;
            if (x >= 0 && x < WIDTH) {
                s_sum += s[row + x];
                t_sum += t[row + x];
            }
        }
        s_out[i] = gain * s_sum + bias;
        t_out[i] = trained ? gain * (s_sum + t_sum) + bias : gain * t_sum;
    }
    __syncthreads();
}

__device__ __forceinline__ void dense(real& s, real& t, real gain, real bias, bool trained) {
    t = trained ? gain * (s + t) + bias : gain * t;
    s = gain * s + bias;
}

template <int SIZE>
__device__ __forceinline__ void dense(real* memory, int slot, real gain, real bias, bool trained) {
    real *s = covariance(memory, slot), *t = tangent(memory, slot);
    EACH(i, SIZE) dense(s[i], t[i], gain, bias, trained);
    __syncthreads();
}

__device__ __forceinline__ void rectify(real& s, real& t, const real* left, const real* right) {
    const real norm = *left * *right;
    real kappa0, kappa1;
    activate<true>(norm > 0 ? s / norm : (real)0, kappa0, kappa1);
    s = norm * kappa1 / 2;
    t = t * kappa0 / 2;
}

template <int SIZE>
__device__ __forceinline__ void rectify(real* memory, int slot, const real* left, const real* right) {
    real *s = covariance(memory, slot), *t = tangent(memory, slot);
    EACH(i, SIZE) rectify(s[i], t[i], left + i, right + i);
    __syncthreads();
}

template <int SIZE>
__device__ __forceinline__ void copy(real* memory, int from, int to) {
    EACH(i, SIZE) {
        covariance(memory, to)[i] = covariance(memory, from)[i];
        tangent(memory, to)[i] = tangent(memory, from)[i];
    }
    __syncthreads();
}

template <int SIZE>
__device__ __forceinline__ void add(real* memory, int from, int to) {
    EACH(i, SIZE) {
        covariance(memory, to)[i] += covariance(memory, from)[i];
        tangent(memory, to)[i] += tangent(memory, from)[i];
    }
    __syncthreads();
}

// The means over positions, the same two numbers in every thread.
template <int SIZE>
__device__ __forceinline__ void flatten(real* memory, int slot, real& s, real& t) {
    __shared__ real partial[2][THREADS / 32];
    s = t = 0;
    EACH(i, SIZE) {
        s += covariance(memory, slot)[i];
        t += tangent(memory, slot)[i];
    }
    for (int offset = 16; offset; offset >>= 1) {
        s += __shfl_down_sync(~0u, s, offset);
        t += __shfl_down_sync(~0u, t, offset);
    }
    if (threadIdx.x % 32 == 0) {
        partial[0][threadIdx.x / 32] = s;
        partial[1][threadIdx.x / 32] = t;
    }
    __syncthreads();
    s = t = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
        s += partial[0][w];
        t += partial[1][w];
    }
    s /= SIZE;
    t /= SIZE;
    __syncthreads();
}

__device__ void network(real* memory, const real* left, const real* right, real& s, real& t);

// images: (n, CHANNELS, POSITIONS); notes: (n, NOTES), the norms of every ReLU in order; result: Σ and Θ of each pair.
extern "C" __global__ void __launch_bounds__(THREADS)
flat(const real* __restrict__ row_images, const real* __restrict__ column_images, const real* __restrict__ row_notes,
     const real* __restrict__ column_notes, const int2* __restrict__ pairs, int count, real2* __restrict__ result) {
    extern __shared__ double aligned[];
    real* memory = reinterpret_cast<real*>(aligned);
    for (int q = blockIdx.x; q < count; q += gridDim.x) {
        const int2 pair = pairs[q];
        const real *row = row_images + (size_t)pair.x * CHANNELS * POSITIONS;
        const real *column = column_images + (size_t)pair.y * CHANNELS * POSITIONS;
        EACH(i, POSITIONS) {
            real sum = 0;
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c) sum += row[c * POSITIONS + i] * column[c * POSITIONS + i];
            memory[i] = sum / CHANNELS;
            memory[AREA + i] = 0;
        }
        __syncthreads();
        real s, t;
        network(memory, row_notes + (size_t)pair.x * NOTES, column_notes + (size_t)pair.y * NOTES, s, t);
        if (threadIdx.x == 0) {
            result[q].x = s;
            result[q].y = t;
        }
    }
}

