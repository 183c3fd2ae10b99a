// Networks with a flatten read-out, a pair of images a block at a time. The maps of a branch lie in shared memory, AREA numbers
// each; `network`, written for the architecture, calls the layers below in order.
//
// Three maps: Σ, Θ, and the distance D = v + v' − 2Σ, which goes through convolutions as Σ does but without bias. Where two
// images all but agree, the angle between them is lost in the rounding of Σ (1e-4 of Θ in float32) and not in that of D:
//     1 − c = (D − (√v − √v')²)/(2√(vv'))        D ← (√v − √v')²/2 + √(vv') (1 − κ1)
//
// Given by the compiler's command line: AREA, CHANNELS, POSITIONS (of an image), NOTES (norms of an image), THREADS, DOUBLE.

#define MAPS 3
struct Maps {
    real *s, *t, *d;
    __device__ __forceinline__ Maps(real* memory, int slot)
        : s(memory + MAPS * slot * AREA), t(memory + (MAPS * slot + 1) * AREA), d(memory + (MAPS * slot + 2) * AREA) {}
};

#define EACH(i, count) for (int i = threadIdx.x; i < (count); i += THREADS)

// Sums over the window's rows: positions outside the image count zero.
template <int WINDOW, int STRIDE, int LOW, int HEIGHT, int WIDTH, int OUT>
__device__ __forceinline__ void down(real* memory, int from, int to) {
    const Maps in(memory, from), out(memory, to);
    EACH(i, OUT * WIDTH) {
        const int top = i / WIDTH * STRIDE - LOW, x = i % WIDTH;
        real s = 0, t = 0, d = 0;
#pragma unroll
        for (int k = 0; k < WINDOW; ++k) {
            const int y = top + k;
            if (y >= 0 && y < HEIGHT) {
                s += in.s[y * WIDTH + x];
                t += in.t[y * WIDTH + x];
                d += in.d[y * WIDTH + x];
            }
        }
        out.s[i] = s;
        out.t[i] = t;
        out.d[i] = d;
    }
    __syncthreads();
}

// What weights of variance `gain` (a share of it for each term) and a bias make of sums.
__device__ __forceinline__ void dense(real& s, real& t, real& d, real gain, real bias, bool trained) {
    t = trained ? gain * (s + t) + bias : gain * t;
    s = gain * s + bias;
    d = gain * d;
}

// Sums over the window's columns, then the layer's weights and bias.
template <int WINDOW, int STRIDE, int LOW, int WIDTH, int HEIGHT, int OUT>
__device__ __forceinline__ void across(real* memory, int from, int to, real gain, real bias, bool trained) {
    const Maps in(memory, from), out(memory, to);
    EACH(i, HEIGHT * OUT) {
        const int first = i % OUT * STRIDE - LOW, row = i / OUT * WIDTH;
        real s = 0, t = 0, d = 0;
#pragma unroll
        for (int k = 0; k < WINDOW; ++k) {
            const int x = first + k;
            if (x >= 0 && x < WIDTH) {
                s += in.s[row + x];
                t += in.t[row + x];
                d += in.d[row + x];
            }
        }
        dense(s, t, d, gain, bias, trained);
        out.s[i] = s;
        out.t[i] = t;
        out.d[i] = d;
    }
    __syncthreads();
}

template <int SIZE>
__device__ __forceinline__ void dense(real* memory, int slot, real gain, real bias, bool trained) {
    const Maps maps(memory, slot);
    EACH(i, SIZE) dense(maps.s[i], maps.t[i], maps.d[i], gain, bias, trained);
    __syncthreads();
}

__device__ __forceinline__ void rectify(real& s, real& t, real& d, const real* left, const real* right) {
    const real a = *left, b = *right, norm = a * b, apart = a - b;
    real c = norm > 0 ? s / norm : (real)0;
    // Lengths far apart cancel in D, not in Σ.
    const bool near = c > (real)0.9 && a < 2 * b && b < 2 * a;
    const real gap = near ? fmax((d - apart * apart) / (2 * norm), (real)0) : ONE - c;
    real kappa0, excess;
    if (near) {
        turn(gap, kappa0, excess);
        kappa0 = ONE - kappa0;
        c = ONE - gap;
    } else {
        activate<true>(c, kappa0, excess);
        excess -= c;
    }
    s = norm * (c + excess) / 2;
    t = t * kappa0 / 2;
    d = apart * apart / 2 + norm * (gap - excess);
}

template <int SIZE>
__device__ __forceinline__ void rectify(real* memory, int slot, const real* left, const real* right) {
    const Maps maps(memory, slot);
    EACH(i, SIZE) rectify(maps.s[i], maps.t[i], maps.d[i], left + i, right + i);
    __syncthreads();
}

template <int SIZE>
__device__ __forceinline__ void copy(real* memory, int from, int to) {
    const Maps in(memory, from), out(memory, to);
    EACH(i, SIZE) {
        out.s[i] = in.s[i];
        out.t[i] = in.t[i];
        out.d[i] = in.d[i];
    }
    __syncthreads();
}

template <int SIZE>
__device__ __forceinline__ void add(real* memory, int from, int to) {
    const Maps in(memory, from), out(memory, to);
    EACH(i, SIZE) {
        out.s[i] += in.s[i];
        out.t[i] += in.t[i];
        out.d[i] += in.d[i];
    }
    __syncthreads();
}

__device__ __forceinline__ real total(real value) {
    __shared__ real partial[THREADS / 32];
    for (int offset = 16; offset; offset >>= 1) value += __shfl_down_sync(~0u, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int w = 0; w < THREADS / 32; ++w) value += partial[w];
    __syncthreads();
    return value;
}

// The means over positions, the same three numbers in every thread.
template <int SIZE>
__device__ __forceinline__ void flatten(real* memory, int slot, real& s, real& t, real& d) {
    const Maps maps(memory, slot);
    s = t = d = 0;
    EACH(i, SIZE) {
        s += maps.s[i];
        t += maps.t[i];
        d += maps.d[i];
    }
    s = total(s) / SIZE;
    t = total(t) / SIZE;
    d = total(d) / SIZE;
}

__device__ void network(real* memory, const real* left, const real* right, real& s, real& t, real& d);

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
            real sum = 0, apart = 0;
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c) {
                const real a = row[c * POSITIONS + i], b = column[c * POSITIONS + i];
                sum += a * b;
                apart += (a - b) * (a - b);
            }
            memory[i] = sum / CHANNELS;
            memory[AREA + i] = 0;
            memory[2 * AREA + i] = apart / CHANNELS;
        }
        __syncthreads();
        real s, t, d;
        network(memory, row_notes + (size_t)pair.x * NOTES, column_notes + (size_t)pair.y * NOTES, s, t, d);
        if (threadIdx.x == 0) {
            result[q].x = s;
            result[q].y = t;
        }
    }
}

