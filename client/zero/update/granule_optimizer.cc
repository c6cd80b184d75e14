#include "client/zero/update/granule_optimizer.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "client/zero/options/optimizer_options.h"
#include "client/zero/update/disk_reads.h"
#include "client/zero/update/tensor_runs.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/pieces.h"

namespace geminid::zero {
namespace {

static_assert(kMaxStateArrays == kernels::kMaxStateArrays);

// A matrix has its last dimension as columns; a vector is one row.
kernels::FactorShape ShapeOf(const Parameter& parameter) {
  kernels::FactorShape shape;
  for (int64_t dimension : parameter.shape) {
    shape.rows *= shape.cols;
    shape.cols = static_cast<uint64_t>(dimension);
  }
  return shape;
}

std::vector<kernels::TensorOptions> TensorsOf(const std::vector<Parameter>& parameters,
                                              const Optimizer& optimizer) {
  std::vector<kernels::TensorOptions> tensors;
  for (const Parameter& parameter : parameters) {
    kernels::TensorOptions tensor;
    tensor.shape = ShapeOf(parameter);
    tensor.learning_rate_scale = parameter.learning_rate_scale;
    tensor.weight_decay = parameter.decay ? parameter.weight_decay : 0.0;
    tensor.frozen = !parameter.trainable;
    if (IsMatrix(parameter, optimizer)) {
      tensor.matrix_rows = static_cast<uint64_t>(*(parameter.shape.end() - 2));
    }
    base::Fnv1a name;
    name.AddText(parameter.name);
    tensor.rounding_id = name.value();
    tensors.push_back(tensor);
  }
  return tensors;
}

kernels::ParameterArrays ArraysOf(const StateView& view, uint64_t offset) {
  kernels::ParameterArrays arrays;
  if (view.type == DataType::kFloat32) {
    arrays.form = kernels::WeightForm::kFloat;
    arrays.master = reinterpret_cast<float*>(view.weight) + offset;
  } else {
    arrays.form = kernels::WeightForm::kSplit;
    arrays.bfloat16 = reinterpret_cast<kernels::BFloat16*>(view.weight) + offset;
    arrays.remainder = view.remainder + offset;
  }
  const bool small = view.state_type == DataType::kBFloat16;
  arrays.state_form = small ? kernels::StateForm::kBFloat16 : kernels::StateForm::kFloat;
  for (size_t i = 0; i < kMaxStateArrays; ++i) {
    if (view.arrays[i] == nullptr) continue;
    if (small) {
      arrays.small_state[i] = reinterpret_cast<kernels::BFloat16*>(view.arrays[i]) + offset;
    } else {
      arrays.state[i] = reinterpret_cast<float*>(view.arrays[i]) + offset;
    }
  }
  return arrays;
}

// The pass's sums are of weights or arrays, not of gradients and factors alone.
bool ReadsState(kernels::OptimizerKind kind, kernels::SumPass pass) {
  if (kind == kernels::OptimizerKind::kCame) return pass == kernels::SumPass::kResiduals;
  return pass == kernels::SumPass::kFirst;
}

kernels::GradientArray GradientAt(const std::byte* gradient, DataType type, uint64_t offset) {
  if (type == DataType::kFloat32) return reinterpret_cast<const float*>(gradient) + offset;
  return reinterpret_cast<const kernels::BFloat16*>(gradient) + offset;
}

}  // namespace

GranuleOptimizer::GranuleOptimizer(const Layout& layout, const std::vector<Parameter>& parameters,
                                   int rank, const Options& options)
    : layout_(layout),
      options_(ToKernel(options.optimizer)),
      needs_sums_(kernels::NeedsSums(options_.kind)),
      of_model_(needs_sums_ && !options.model.empty()),
      tensors_(of_model_ ? options.model.size() : parameters.size()),
      tensor_options_(TensorsOf(of_model_ ? options.model : parameters, options.optimizer)),
      step_(options_, tensor_options_) {
  MakeRuns(parameters, rank, of_model_ ? options.model : std::vector<Parameter>());
  const bool leaves_out = std::ranges::any_of(parameters, [](const Parameter& parameter) {
    return parameter.trainable && !parameter.update_without_gradient;
  });
  if (leaves_out && CountsUpdates(options_)) updates_ = UpdateCounts(tensors_);
}

absl::Status GranuleOptimizer::status() const { return FromKernel(step_.status(), "ShardedStep"); }

absl::StatusOr<uint64_t> GranuleOptimizer::WorkspaceBytes(size_t threads) const {
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(
      FromKernel(step_.MatrixWorkspaceBytes(threads, &bytes), "MatrixWorkspaceBytes"));
  return bytes;
}

uint64_t GranuleOptimizer::SumsAndFactorsBytes() const {
  return TensorStateBytes(options_, tensors_, step_.FactorTotal());
}

uint64_t GranuleOptimizer::tensor_state_bytes() const {
  return SumsAndFactorsBytes() + updates_.bytes().size();
}

void GranuleOptimizer::MakeRuns(const std::vector<Parameter>& parameters, int rank,
                                const std::vector<Parameter>& model) {
  runs_.resize(layout_.granules);
  for (const ChunkShape& chunk : layout_.chunks) {
    if (!chunk.trainable) continue;
    const uint64_t shard_begin =
        static_cast<uint64_t>(rank) * chunk.granules * chunk.granule_elements;
    // Adds elements [first, end_of_run) of the chunk: those of `run`'s tensor, or of none.
    const auto add = [&](uint64_t first, uint64_t end_of_run, const TensorRun* run, bool counts) {
      if (first >= end_of_run) return;
      const uint64_t shard_end = shard_begin + chunk.granules * chunk.granule_elements;
      uint64_t at = std::max(first, shard_begin);
      for (; at < std::min(end_of_run, shard_end);) {
        const uint64_t granule = (at - shard_begin) / chunk.granule_elements;
        const uint64_t begin = shard_begin + granule * chunk.granule_elements;
        const uint64_t end = std::min(end_of_run, begin + chunk.granule_elements);
        Run made = {.granule_offset = at - begin, .elements = end - at};
        if (run != nullptr) {
          made.tensor = run->tensor;
          made.tensor_offset = run->tensor_offset + (at - first);
          made.counts = counts;
        }
        runs_[chunk.first_granule + granule].push_back(made);
        at = end;
      }
    };
    uint64_t at = 0;
    for (const uint32_t id : chunk.tensors) {
      const uint64_t begin = layout_.tensors[id].offset;
      for (const TensorRun& run : RunsOf(parameters[id], id, model)) {
        add(at, begin + run.offset, nullptr, false);
        at = begin + run.offset + run.elements;
        add(begin + run.offset, at, &run, model.empty() || parameters[id].counts);
      }
    }
    add(at, chunk.elements, nullptr, false);
  }
}

std::vector<int64_t> GranuleOptimizer::CountedElements() const {
  std::vector<int64_t> counted(needs_sums_ ? tensors_ : 0);
  if (!needs_sums_) return counted;
  for (const std::vector<Run>& runs : runs_) {
    for (const Run& run : runs) {
      if (run.counts) counted[run.tensor] += static_cast<int64_t>(run.elements);
    }
  }
  return counted;
}

GranuleOptimizer::Run GranuleOptimizer::PartOf(const Run& run, uint64_t begin, uint64_t end) {
  Run part = run;
  part.granule_offset = std::max(begin, run.granule_offset);
  const uint64_t part_end = std::min(end, run.granule_offset + run.elements);
  part.tensor_offset += part.granule_offset - run.granule_offset;
  part.elements = part_end - part.granule_offset;
  return part;
}

kernels::Segment GranuleOptimizer::SegmentOf(const Run& run, const Slice& at) const {
  const uint64_t offset = run.granule_offset - at.begin;
  kernels::Segment segment;
  segment.tensor = run.tensor;
  segment.offset = run.tensor == kernels::kNoTensor ? 0 : run.tensor_offset;
  segment.count = run.elements;
  segment.arrays = ArraysOf(at.state, offset).View();
  segment.gradient = GradientAt(at.gradient, at.gradient_type, offset);
  return segment;
}

kernels::Segment GranuleOptimizer::SegmentOf(const Run& run, uint32_t granule,
                                             const StateView& state,
                                             const StateStore& store) const {
  return SegmentOf(run, {.granule = granule,
                         .state = state,
                         .gradient = store.Gradient(granule),
                         .gradient_type = store.GradientType(granule)});
}

// Of state on disk they name the first of the places that it is read into.
GranuleOptimizer::Segments GranuleOptimizer::AllSegments(const StateStore& store) const {
  Segments segments;
  for (uint32_t granule = 0; granule < layout_.granules; ++granule) {
    StateView state = store.Current(granule);
    if (store.granule_on_disk(granule)) {
      const DiskState& disk = *store.disk();
      state = disk.ViewOf(store.OnDisk(granule).extent, disk.places().front().extent, state.weight);
    }
    for (const Run& run : runs_[granule]) {
      if (!run.counts) continue;
      segments.all.push_back(SegmentOf(run, granule, state, store));
      segments.runs.push_back(run);
      segments.granules.push_back(granule);
    }
  }
  return segments;
}

absl::Status GranuleOptimizer::AddSums(kernels::SumPass pass, const Segments& segments,
                                       const StateStore& store, std::span<double> sums) {
  const bool reads = ReadsState(options_.kind, pass);
  std::vector<uint32_t> on_disk;
  for (const uint32_t granule : segments.granules) {
    const bool is_next = on_disk.empty() || on_disk.back() != granule;
    if (reads && is_next && store.granule_on_disk(granule)) on_disk.push_back(granule);
  }
  DiskReads disk(store, std::move(on_disk));
  std::optional<uint32_t> there;
  StateView state;
  for (size_t i = 0; i < segments.all.size(); ++i) {
    const uint32_t granule = segments.granules[i];
    kernels::Segment segment = segments.all[i];
    if (reads && store.granule_on_disk(granule)) {
      if (there != granule) {
        GEMINID_ASSIGN_OR_RETURN(state, disk.Next());
      }
      there = granule;
      segment = SegmentOf(segments.runs[i], granule, state, store);
    }
    GEMINID_RETURN_IF_ERROR(FromKernel(step_.AddSums(pass, segment, sums.data()), "ShardedStep"));
  }
  return absl::OkStatus();
}

absl::Status GranuleOptimizer::PrepareFromDisk(const kernels::StepScalars& scalars,
                                               const Segments& segments, const float* old_factors,
                                               const kernels::ReduceSum& reduce, float* new_factors,
                                               const StateStore& store) {
  absl::Status added;
  const auto add = [&](kernels::SumPass pass, std::span<const kernels::Segment> /* all */,
                       std::span<double> sums) {
    added = AddSums(pass, segments, store, sums);
    return added.ok() ? kernels::Status::kOk : kernels::Status::kCallbackFailed;
  };
  GEMINID_RETURN_IF_ERROR(store.ComputeOfTensors().Finish());
  const kernels::Status status = step_.Prepare(scalars, segments.all, old_factors, reduce,
                                               new_factors, {.add_sums = add, .make_factors = {}});
  GEMINID_RETURN_IF_ERROR(added);
  return FromKernel(status, "ShardedStep");
}

// The step's own rate; 1 if tensors have rates, which their scales are multiplied by.
double GranuleOptimizer::SetRates(const kernels::StepScalars& scalars,
                                  std::span<const TensorRates> rates) {
  const std::vector<TensorRates> none(of_model_ ? tensors_ : 0);
  if (of_model_) rates = none;
  const bool of_tensors = std::ranges::any_of(
      rates, [](const TensorRates& rate) { return rate.learning_rate.has_value(); });
  for (size_t t = 0; t < tensor_options_.size(); ++t) {
    const TensorRates& rate = rates[t];
    kernels::TensorOptions own = tensor_options_[t];
    if (of_tensors) own.learning_rate_scale *= rate.learning_rate.value_or(scalars.learning_rate);
    // A tensor that is not subject to decay gets none.
    if (rate.weight_decay.has_value() && own.weight_decay != 0.0) {
      own.weight_decay = rate.weight_decay;
    }
    own.beta1 = rate.beta1;
    own.beta2 = rate.beta2;
    own.epsilon = rate.epsilon;
    own.step = updates_.of(t);
    own.frozen |= rate.skip;
    step_.SetTensor(t, own);
  }
  return of_tensors ? 1 : scalars.learning_rate;
}

absl::Status GranuleOptimizer::Prepare(const kernels::StepScalars& step_scalars,
                                       std::span<const TensorRates> rates, const StateStore& store,
                                       collectives::Communicator* communicator) {
  updates_.Count(rates);
  kernels::StepScalars scalars = step_scalars;
  scalars.learning_rate = SetRates(scalars, rates);
  Segments segments;
  if (needs_sums_) segments = AllSegments(store);
  const uint64_t sums_bytes = needs_sums_ ? kSumsPerTensor * tensors_ * sizeof(double) : 0;
  const auto factors = [&](std::byte* state) {
    return state == nullptr ? nullptr : reinterpret_cast<float*>(state + sums_bytes);
  };
  absl::Status reduced;
  const auto reduce = [&](std::span<double> values) {
    reduced = communicator->AllReduce(values, values, collectives::ReduceOp::kSum);
    return reduced.ok();
  };
  std::byte* const spare = store.SpareTensorState();
  const ComputePlace& place = store.ComputeOfTensors();
  const float* const old_factors = factors(store.TensorState());
  absl::Status prepared;
  if (needs_sums_ && store.any_on_disk()) {
    prepared = PrepareFromDisk(scalars, segments, old_factors, reduce, factors(spare), store);
  } else {
    prepared =
        FromKernel(place.ops->Prepare(*place.stream, &step_, scalars, segments.all, old_factors,
                                      reduce, factors(spare), store.DeviceScales()),
                   "ShardedStep");
  }
  if (!reduced.ok()) return reduced;
  GEMINID_RETURN_IF_ERROR(prepared);
  return WriteTensorState(store);
}

// The factors are in the spare already.
absl::Status GranuleOptimizer::WriteTensorState(const StateStore& store) const {
  if (tensor_state_bytes() == 0) return absl::OkStatus();
  std::byte* const spare = store.SpareTensorState();
  const ComputePlace& place = store.ComputeOfTensors();
  if (needs_sums_) {
    const auto sums = std::as_bytes(step_.TensorSums());
    place.ops->Copy(*place.stream, spare, sums.data(), sums.size());
  }
  const std::span<const std::byte> counts = updates_.bytes();
  if (!counts.empty()) {
    place.ops->Copy(*place.stream, spare + SumsAndFactorsBytes(), counts.data(), counts.size());
  }
  return place.Finish();
}

void GranuleOptimizer::GoOnFrom(std::span<const std::byte> tensor_state) {
  updates_.Set(tensor_state.subspan(SumsAndFactorsBytes()));
}

absl::StatusOr<std::vector<std::byte>> GranuleOptimizer::Adopt(
    const Progress& progress, const std::vector<Parameter>& parameters) const {
  std::vector<std::byte> state = progress.tensor_state;
  const uint64_t bytes = SumsAndFactorsBytes();
  const std::vector<uint64_t> all(tensors_, progress.updates);
  const auto all_bytes = std::as_bytes(std::span(all));
  const bool has_counts =
      !of_model_ && CountsUpdates(options_) && state.size() == bytes + all_bytes.size();
  if (state.size() != bytes && !has_counts) {
    return absl::InvalidArgumentError(
        absl::StrCat("the optimizer's numbers per tensor are ", state.size(),
                     " bytes; this model and optimizer have ", tensor_state_bytes()));
  }
  if (!has_counts && !updates_.bytes().empty()) {
    state.insert(state.end(), all_bytes.begin(), all_bytes.end());
  }
  if (!has_counts || !updates_.bytes().empty()) return state;
  UpdateCounts counted(tensors_);
  counted.Set(std::span(state).subspan(bytes));
  for (size_t t = 0; t < tensors_; ++t) {
    if (!parameters[t].trainable || counted.of(t) == progress.updates) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameters[t].name, "' has had ", counted.of(t),
                     " of the run's ", progress.updates,
                     " updates: this engine must count them too, with "
                     "Parameter::update_without_gradient false for it"));
  }
  state.resize(bytes);
  return state;
}

absl::Status GranuleOptimizer::Restore(const StepNote& note,
                                       std::span<const std::byte> tensor_state) {
  GoOnFrom(tensor_state);
  kernels::StepScalars scalars = note.scalars;
  scalars.learning_rate = SetRates(scalars, note.rates);
  std::vector<double> sums(kSumsPerTensor * tensors_, 0.0);
  if (!needs_sums_) return FromKernel(step_.Restore(scalars, sums, nullptr), "ShardedStep");
  const std::span<std::byte> sums_bytes = std::as_writable_bytes(std::span(sums));
  std::ranges::copy(tensor_state.first(sums_bytes.size()), sums_bytes.begin());
  const auto* const factors =
      reinterpret_cast<const float*>(tensor_state.data() + sums_bytes.size());
  return FromKernel(step_.Restore(scalars, sums, factors), "ShardedStep");
}

absl::Status GranuleOptimizer::UpdateOnDevice(uint32_t granule, const StateStore& store,
                                              kernels::ThreadPool* pool) const {
  const ComputePlace& place = store.ComputeOf(granule);
  for (const Run& run : runs_[granule]) {
    place.ops->Apply(*place.stream, step_, SegmentOf(run, granule, store.Current(granule), store),
                     ArraysOf(store.Spare(granule), run.granule_offset), pool);
  }
  return place.Finish();
}

void GranuleOptimizer::QueueInPlace(const Slice& slice, const ComputePlace& place,
                                    kernels::ThreadPool* pool) const {
  const uint64_t end = slice.begin + slice.elements;
  for (const Run& run : runs_[slice.granule]) {
    if (run.granule_offset >= end || run.granule_offset + run.elements <= slice.begin) continue;
    const Run part = PartOf(run, slice.begin, end);
    place.ops->Apply(*place.stream, step_, SegmentOf(part, slice),
                     ArraysOf(slice.state, part.granule_offset - slice.begin), pool);
  }
}

kernels::Status GranuleOptimizer::Apply(const Run& run, uint32_t granule, const StateView& from,
                                        const StateView& to, const StateStore& store) const {
  return step_.Apply(SegmentOf(run, granule, from, store), ArraysOf(to, run.granule_offset));
}

bool GranuleOptimizer::HasMatrices(uint32_t granule) const {
  return std::ranges::any_of(runs_[granule], [this](const Run& run) {
    return run.tensor != kernels::kNoTensor && tensor_options_[run.tensor].matrix_rows != 0;
  });
}

absl::Status GranuleOptimizer::UpdateMatrices(uint32_t granule, const StateView& from,
                                              const StateView& to, const StateStore& store,
                                              kernels::ThreadPool* pool) const {
  for (const Run& run : runs_[granule]) {
    const kernels::Segment segment = SegmentOf(run, granule, from, store);
    const kernels::Status status =
        step_.OfMatrices(segment)
            ? step_.ApplyMatrices(segment, ArraysOf(to, run.granule_offset), pool)
            : Apply(run, granule, from, to, store);
    GEMINID_RETURN_IF_ERROR(FromKernel(status, "ShardedStep"));
  }
  return absl::OkStatus();
}

absl::Status GranuleOptimizer::Update(uint32_t granule, const StateStore& store,
                                      kernels::ThreadPool* pool) const {
  if (store.granule_on_device(granule)) return UpdateOnDevice(granule, store, pool);
  return UpdateBetween(granule, store.Current(granule), store.Spare(granule), store, pool);
}

absl::Status GranuleOptimizer::UpdateBetween(uint32_t granule, const StateView& from,
                                             const StateView& to, const StateStore& store,
                                             kernels::ThreadPool* pool) const {
  if (HasMatrices(granule)) return UpdateMatrices(granule, from, to, store, pool);
  std::atomic<kernels::Status> status = kernels::Status::kOk;
  const auto update = [&](uint64_t begin, uint64_t end) {
    // The granule's first run begins at 0.
    auto run = std::ranges::upper_bound(runs_[granule], begin, {}, &Run::granule_offset) - 1;
    for (; run != runs_[granule].end() && run->granule_offset < end; ++run) {
      const kernels::Status done = Apply(PartOf(*run, begin, end), granule, from, to, store);
      if (done != kernels::Status::kOk) status.store(done);
    }
  };
  // Runs cover the whole granule, padding included.
  const Run& last = runs_[granule].back();
  kernels::RunInPieces(pool, last.granule_offset + last.elements, update);
  return FromKernel(status.load(), "ShardedStep");
}

}  // namespace geminid::zero
