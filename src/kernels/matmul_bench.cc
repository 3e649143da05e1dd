// Speed of matmul, weight_grad and transpose beside what the machine can do: GFLOP/s and GB/s, and each as a
// share of the limit measured in the same run with the same target and threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/machine_limits.h"
#include "kernels/ops.h"

namespace rondo::kernels {
namespace {

struct Limits {
  double flops;
  double bytes;
};

void report(benchmark::State& state, double flops, double bytes, const Limits& limits) {
  const double runs = static_cast<double>(state.iterations());
  using benchmark::Counter;
  const auto rate = [](double amount) { return Counter(amount, Counter::kIsRate); };
  state.counters["GFLOP/s"] = rate(runs * flops * 1e-9);
  state.counters["of_peak"] = rate(runs * flops / limits.flops);
  state.counters["GB/s"] = rate(runs * bytes * 1e-9);
  state.counters["of_bandwidth"] = rate(runs * bytes / limits.bytes);
}

AlignedBuffer<float> filled(std::int64_t count) {
  AlignedBuffer<float> buffer(static_cast<std::size_t>(count));
  std::fill(buffer.span().begin(), buffer.span().end(), 0.5F);
  return buffer;
}

PackedMatrix filled_matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
  PackedMatrix matrix(dtype, rows, cols);
  const std::vector<float> row(static_cast<std::size_t>(cols), 0.25F);
  for (std::int64_t r = 0; r < rows; ++r) matrix.pack_rows(r, 1, row.data());
  return matrix;
}

// Arguments: rows, outs, cols. Enough copies of the weights to pass over 256 MiB, as a model's layers do.
void bench_matmul(benchmark::State& state, Context ctx, DType dtype, Limits limits) {
  const std::int64_t rows = state.range(0), outs = state.range(1), cols = state.range(2);
  std::vector<PackedMatrix> layers;
  for (std::size_t bytes = 0; bytes < (std::size_t{256} << 20); bytes += layers.back().bytes())
    layers.push_back(filled_matrix(dtype, outs, cols));
  const AlignedBuffer<float> x = filled(rows * cols);
  AlignedBuffer<float> y(static_cast<std::size_t>(rows * outs));
  std::size_t layer = 0;
  for (auto _ : state) {
    matmul(ctx, layers[layer], x.data(), cols, rows, y.data(), outs);
    layer = (layer + 1) % layers.size();
  }
  report(state, 2.0 * static_cast<double>(rows * outs * cols), static_cast<double>(layers[0].bytes()),
         limits);
}

// All matrices of SmolLM2-135M in turn, in one piece of memory, as a decode step or a prefill reads them.
// Argument: rows.
void bench_model_matmuls(benchmark::State& state, Context ctx, DType dtype, Limits limits) {
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;  // outs, cols
  for (int layer = 0; layer < 30; ++layer)
    shapes.insert(shapes.end(), {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}});
  shapes.emplace_back(49152, 576);
  std::size_t bytes = 0;
  std::int64_t elements = 0;
  for (const auto& [outs, cols] : shapes) {
    bytes += PackedMatrix::storage_bytes(dtype, outs, cols);
    elements += outs * cols;
  }
  AlignedBuffer<std::byte> storage(bytes);
  std::vector<PackedMatrix> matrices;
  std::byte* next = storage.data();
  for (const auto& [outs, cols] : shapes) {
    matrices.emplace_back(dtype, outs, cols, next);
    next += matrices.back().bytes();
  }
  const std::int64_t rows = state.range(0);
  const AlignedBuffer<float> x = filled(rows * 1536);
  AlignedBuffer<float> y(static_cast<std::size_t>(rows * 49152));
  for (auto _ : state)
    for (const PackedMatrix& w : matrices) matmul(ctx, w, x.data(), w.cols(), rows, y.data(), w.rows());
  report(state, 2.0 * static_cast<double>(rows * elements), static_cast<double>(bytes), limits);
}

// Arguments: m, r, c.
void bench_weight_grad(benchmark::State& state, Context ctx, Limits limits) {
  const std::int64_t m = state.range(0), r = state.range(1), c = state.range(2);
  const AlignedBuffer<float> dy = filled(m * r);
  const AlignedBuffer<float> x = filled(m * c);
  AlignedBuffer<float> dw(static_cast<std::size_t>(r * c));
  for (auto _ : state)
    weight_grad(ctx, {.dy = dy.data(),
                      .lddy = r,
                      .x = x.data(),
                      .ldx = c,
                      .dw = dw.data(),
                      .lddw = c,
                      .rows = m,
                      .cols = c,
                      .r_begin = 0,
                      .r_end = r,
                      .continue_chain = false});
  report(state, 2.0 * static_cast<double>(m * r * c), static_cast<double>(dw.size() * sizeof(float)), limits);
}

// Arguments: rows, cols. Bytes count both sides.
void bench_transpose(benchmark::State& state, Context ctx, DType dtype, Limits limits) {
  const PackedMatrix w = filled_matrix(dtype, state.range(0), state.range(1));
  PackedMatrix out(dtype, w.cols(), w.rows());
  for (auto _ : state) transpose(ctx, w, out);
  report(state, 0, static_cast<double>(w.bytes() + out.bytes()), limits);
}

void register_target(const OpTable& table, ThreadPool& pool) {
  const Context ctx = {&table, &pool};
  const Limits limits = {measure_fma_peak(ctx), measure_read_bandwidth(ctx)};
  const std::string suffix = std::string("/") + table.name + "/threads:" + std::to_string(pool.num_threads());
  benchmark::AddCustomContext("limits" + suffix, std::to_string(limits.flops * 1e-9) + " GFLOP/s, " +
                                                     std::to_string(limits.bytes * 1e-9) + " GB/s");
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::string name = std::string(dtype_name(dtype)) + suffix;
    auto* matmul = benchmark::RegisterBenchmark(("matmul/" + name).c_str(), bench_matmul, ctx, dtype, limits);
    for (const int rows : {1, 2, 4, 5, 8, 16, 64, 192, 512})
      for (const auto& [outs, cols] :
           {std::pair(576, 576), {3072, 576}, {576, 1536}, {49152, 576}, {576, 49152}})
        matmul->Args({rows, outs, cols});
    matmul->ArgNames({"rows", "outs", "cols"})->UseRealTime();
    auto* model = benchmark::RegisterBenchmark(("model_matmuls/" + name).c_str(), bench_model_matmuls, ctx,
                                               dtype, limits);
    for (const int rows : {1, 4, 8, 16, 32, 64, 512}) model->Arg(rows);
    model->ArgName("rows")->UseRealTime()->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("transpose/" + name).c_str(), bench_transpose, ctx, dtype, limits)
        ->Args({3072, 576})
        ->Args({49152, 576})
        ->ArgNames({"rows", "cols"})
        ->UseRealTime();
  }
  auto* grad = benchmark::RegisterBenchmark(("weight_grad" + suffix).c_str(), bench_weight_grad, ctx, limits);
  for (const int m : {64, 192, 512, 2048})
    for (const auto& [r, c] : {std::pair(576, 576), {3072, 576}, {576, 1536}, {49152, 576}})
      grad->Args({m, r, c});
  grad->ArgNames({"m", "r", "c"})->UseRealTime();
}

}  // namespace
}  // namespace rondo::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  rondo::ThreadPool one(1);
  rondo::ThreadPool all(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  for (const rondo::kernels::OpTable* table : rondo::kernels::available_targets()) {
    rondo::kernels::register_target(*table, one);
    if (all.num_threads() > 1) rondo::kernels::register_target(*table, all);
  }
  benchmark::RunSpecifiedBenchmarks();
}
