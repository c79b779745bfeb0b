/* Attention of one new position, and RMS norms, in fp32. The compiler is told HEAD_DIM, GROUP (query heads for each key head)
   and EPSILON. Tensors are contiguous. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { HALF = HEAD_DIM / 2, LANES = 16 };

/* e^x for x <= 0, to 2e-7 of its value. Source: Cephes, expf. */
static inline float exp_of(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* Rotary position; the first half of `sine` is negated. `x` [HEAD_DIM] is written `stride` apart. */
static inline void turn(const float *x, const float *cosine, const float *sine, float *out, int64_t stride) {
    for (int i = 0; i < HALF; i++) {
        out[i * stride] = x[i] * cosine[i] + x[i + HALF] * sine[i];
        out[(i + HALF) * stride] = x[i + HALF] * cosine[i + HALF] + x[i] * sine[i + HALF];
    }
}

static void softmax(float *scores, int64_t length) {
    float top = scores[0], total = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t l = 0; l < length; l++) top = scores[l] > top ? scores[l] : top;
#pragma omp simd reduction(+ : total)
    for (int64_t l = 0; l < length; l++) {
        scores[l] = exp_of(scores[l] - top);
        total += scores[l];
    }
    float scale = 1.0f / total;
    for (int64_t l = 0; l < length; l++) scores[l] *= scale;
}

/* Scores of GROUP queries [GROUP, HEAD_DIM] with the first `length` keys [HEAD_DIM, size], and with those up to the next
   multiple of LANES, which mean nothing. Shapes: `scores` [GROUP, size]. */
static void score(const float *query, const float *restrict keys, int64_t length, int64_t size, float *restrict scores) {
    const float scale = 1.0f / sqrtf(HEAD_DIM);
    for (int64_t start = 0; start < length; start += LANES) {
        float sums[GROUP][LANES] = {{0}};
        for (int i = 0; i < HEAD_DIM; i++)
            for (int g = 0; g < GROUP; g++)
#pragma omp simd
                for (int l = 0; l < LANES; l++) sums[g][l] += query[g * HEAD_DIM + i] * keys[i * size + start + l];
        for (int g = 0; g < GROUP; g++)
            for (int l = 0; l < LANES; l++) scores[g * size + start + l] = sums[g][l] * scale;
    }
}

/* Writes the new keys and values of each row at its place, and what its queries find up to there.
   Shapes: `heads` [rows, (GROUP + 2) kv, HEAD_DIM], queries, keys, values; `cosine`, `sine` [size, HEAD_DIM]; `places` [rows];
   `keys` [rows, kv, HEAD_DIM, size]; `values` [rows, kv, size, HEAD_DIM]; `scratch` [GROUP, size]; size is a multiple of LANES;
   `out` [rows, GROUP kv, HEAD_DIM]. */
void attend(int64_t rows, int64_t kv, int64_t size, const float *heads, const float *cosine, const float *sine,
            const int64_t *places, float *keys, float *values, float *scratch, float *out) {
    for (int64_t row = 0; row < rows; row++) {
        const float *queries = heads + row * kv * (GROUP + 2) * HEAD_DIM;
        const float *new_keys = queries + kv * GROUP * HEAD_DIM, *new_values = new_keys + kv * HEAD_DIM;
        const float *c = cosine + places[row] * HEAD_DIM, *s = sine + places[row] * HEAD_DIM;
        for (int64_t head = 0; head < kv; head++) {
            float *own_keys = keys + (row * kv + head) * size * HEAD_DIM;
            float *own_values = values + (row * kv + head) * size * HEAD_DIM;
            float query[GROUP * HEAD_DIM], found[GROUP * HEAD_DIM] = {0};
            turn(new_keys + head * HEAD_DIM, c, s, own_keys + places[row], size);
            memcpy(own_values + places[row] * HEAD_DIM, new_values + head * HEAD_DIM, HEAD_DIM * sizeof(float));
            for (int g = 0; g < GROUP; g++)
                turn(queries + (head * GROUP + g) * HEAD_DIM, c, s, query + g * HEAD_DIM, 1);
            score(query, own_keys, places[row] + 1, size, scratch);
            for (int g = 0; g < GROUP; g++) softmax(scratch + g * size, places[row] + 1);
            for (int64_t l = 0; l <= places[row]; l++)
                for (int g = 0; g < GROUP; g++)
#pragma omp simd
                    for (int i = 0; i < HEAD_DIM; i++)
                        found[g * HEAD_DIM + i] += scratch[g * size + l] * own_values[l * HEAD_DIM + i];
            memcpy(out + (row * kv + head) * GROUP * HEAD_DIM, found, sizeof found);
        }
    }
}

/* Shapes: `x`, `out` [rows, width]; `weight` [width]. */
void rms_norm(int64_t rows, int64_t width, const float *x, const float *weight, float *out) {
    for (int64_t row = 0; row < rows; row++, x += width, out += width) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; i++) sum += x[i] * x[i];
        float scale = 1.0f / sqrtf(sum / (float)width + EPSILON);
        for (int64_t i = 0; i < width; i++) out[i] = x[i] * scale * weight[i];
    }
}
