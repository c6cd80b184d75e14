#include "tests/client/zero/synthetic_training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "base/hash.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/options/optimizer_options.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::zero {
namespace {

using kernels::BFloat16;

constexpr double kLearningRate = 0.01;
constexpr double kClipEpsilon = 1e-6;

uint64_t ElementsOf(const Parameter& parameter) {
  uint64_t elements = 1;
  for (int64_t dimension : parameter.shape) elements *= static_cast<uint64_t>(dimension);
  return elements;
}

// A value in [-1, 1) from counters.
float Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x =
      a * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull + c * 0x94d049bb133111ebull + d;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) / (1 << 23);
}

float InitialValue(uint32_t parameter, uint64_t element) {
  return 0.1f * Noise(parameter, element, 17, 0);
}

// An infinite fp32 number. Its bytes are also two bf16 numbers, one of them infinite.
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sample {
  int rank = 0;
  int step = 0;
  int micro_batch = 0;
  float loss_scale = 1;
  absl::Time* clock = nullptr;
};

void PassTime(const SyntheticRun& run, const Sample& sample) {
  if (run.operator_time) *sample.clock += run.operator_time(sample.rank, sample.step);
}

// The contribution of one use to the gradient.
float GradientOf(uint32_t parameter, uint64_t element, float weight, const Sample& sample) {
  return 0.25f * weight + Noise(parameter, element,
                                static_cast<uint64_t>(sample.step) * 64 + sample.micro_batch,
                                static_cast<uint64_t>(sample.rank) + 1);
}

template <typename T>
float Load(const T* at) {
  if constexpr (std::is_same_v<T, float>) {
    return *at;
  } else {
    return at->ToFloat();
  }
}

template <typename T>
T Store(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return BFloat16::FromFloat(value);
  }
}

// Writes or adds one use's gradient, as a kernel would. The gradient may replace the weight. The
// first use includes the weight's term.
template <typename T>
void WriteGradient(uint32_t parameter, const std::byte* weight, std::byte* gradient,
                   uint64_t elements, bool accumulate, const Sample& sample) {
  const T* from = reinterpret_cast<const T*>(weight);
  T* to = reinterpret_cast<T*>(gradient);
  for (uint64_t i = 0; i < elements; ++i) {
    to[i] = accumulate
                ? Store<T>(Load(&to[i]) + sample.loss_scale * Noise(parameter, i, 99, 1))
                : Store<T>(sample.loss_scale * GradientOf(parameter, i, Load(&from[i]), sample));
  }
}

// The objects that a rank uses.
struct Driven {
  Session* session = nullptr;
  Engine* engine = nullptr;
  ActivationStack* stack = nullptr;  // null: activations lie in the workspace
};

// An operator's activations from the forward to the backward pass, in the workspace or on a stack.
class LeftActivations {
 public:
  LeftActivations(const Driven& driven, uint64_t bytes) : driven_(driven), bytes_(bytes) {}

  absl::Status Begin() { return OnStack() ? driven_.stack->Begin() : absl::OkStatus(); }

  absl::Status Write() {
    if (OnStack()) {
      const absl::StatusOr<std::byte*> place = driven_.stack->Push();
      if (!place.ok()) return place.status();
      std::memset(driven_.session->HostAddress(*place), Pattern(count_), bytes_);
      return driven_.stack->Written(count_++);
    }
    absl::StatusOr<Workspace::Block> block = driven_.engine->workspace().Allocate(bytes_);
    if (!block.ok()) return block.status();
    std::memset(driven_.session->HostAddress(block->data()), Pattern(count_++), bytes_);
    blocks_.push_back(*std::move(block));
    return absl::OkStatus();
  }

  // Checks that weights and gradients have not overwritten the last activations.
  absl::Status Check() {
    const std::byte* at = OnStack() ? nullptr : blocks_.back().data();
    if (OnStack()) {
      const absl::StatusOr<std::byte*> place = driven_.stack->Top();
      if (!place.ok()) return place.status();
      at = *place;
    }
    at = driven_.session->HostAddress(at);
    --count_;
    const auto same = [&](std::byte b) { return b == std::byte(Pattern(count_)); };
    if (!std::all_of(at, at + bytes_, same)) {
      return absl::DataLossError("an activation was overwritten");
    }
    if (OnStack()) return driven_.stack->Pop();
    blocks_.pop_back();
    return absl::OkStatus();
  }

 private:
  bool OnStack() const { return driven_.stack != nullptr; }
  static unsigned char Pattern(uint32_t item) { return static_cast<unsigned char>(0x5a + item); }

  const Driven driven_;
  const uint64_t bytes_;
  uint32_t count_ = 0;
  std::vector<Workspace::Block> blocks_;
};

absl::Status Backward(const Driven& driven, const SyntheticRun& run,
                      const std::vector<uint32_t>& parameters, const Sample& sample) {
  std::vector<ParameterId> ids;
  for (uint32_t parameter : parameters) ids.push_back(ParameterId{parameter});
  absl::StatusOr<Operation> operation = driven.engine->Use(Pass::kBackward, ids);
  if (!operation.ok()) return operation.status();
  PassTime(run, sample);
  for (uint32_t parameter : parameters) {
    if (!run.model.parameters[parameter].trainable) continue;
    const ParameterId id{parameter};
    const uint64_t elements = ElementsOf(run.model.parameters[parameter]);
    const bool accumulate = operation->GradientAccumulates(id);
    const std::byte* weight = driven.session->HostAddress(operation->Weight(id));
    std::byte* gradient = driven.session->HostAddress(operation->Gradient(id));
    const bool stays = run.options.stage != Stage::kWeights;
    if (gradient == nullptr || (weight == nullptr) != (accumulate && !stays)) {
      return absl::InternalError("a weight or gradient is not where it should be");
    }
    if (TypeOf(run.model.parameters[parameter], run.options) == DataType::kBFloat16) {
      WriteGradient<BFloat16>(parameter, weight, gradient, elements, accumulate, sample);
    } else {
      WriteGradient<float>(parameter, weight, gradient, elements, accumulate, sample);
    }
    if (sample.step == run.overflow_step && sample.rank == 0 && parameter == 0) {
      std::memcpy(gradient, &kInfinity, sizeof(kInfinity));
    }
    if (absl::Status status = operation->GradientWritten(id); !status.ok()) return status;
  }
  return operation->Finish();
}

absl::Status RunMicroBatch(const Driven& driven, const SyntheticRun& run, const Sample& sample) {
  Engine* const engine = driven.engine;
  if (absl::Status status = engine->BeginMicroBatch(); !status.ok()) return status;
  const std::vector<std::vector<uint32_t>> operators =
      run.operators_at ? run.operators_at(sample.step) : run.model.operators;
  const uint64_t bytes = run.activation_bytes_at ? run.activation_bytes_at(sample.rank, sample.step,
                                                                           run.activation_bytes)
                                                 : run.activation_bytes;
  LeftActivations activations(driven, bytes);
  if (absl::Status status = activations.Begin(); !status.ok()) return status;
  for (const std::vector<uint32_t>& parameters : operators) {
    std::vector<ParameterId> ids;
    for (uint32_t parameter : parameters) ids.push_back(ParameterId{parameter});
    absl::StatusOr<Operation> operation = engine->Use(Pass::kForward, ids);
    if (!operation.ok()) return operation.status();
    PassTime(run, sample);
    if (absl::Status status = activations.Write(); !status.ok()) return status;
    if (absl::Status status = operation->Finish(); !status.ok()) return status;
  }
  for (size_t i = operators.size(); i-- > 0;) {
    if (absl::Status status = Backward(driven, run, operators[i], sample); !status.ok()) {
      return status;
    }
    if (absl::Status status = activations.Check(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// --- the dense reference -------------------------------------------------------------------------

// One rank's gradient in one micro-batch.
template <typename T>
std::vector<float> RankGradient(const SyntheticRun& run, uint32_t parameter,
                                const std::vector<float>& master, const Sample& sample) {
  std::vector<float> gradient(master.size());
  for (uint64_t i = 0; i < master.size(); ++i) {
    T storage;
    if constexpr (std::is_same_v<T, float>) {
      storage = master[i];
    } else {
      storage = kernels::SplitMasterBits(std::bit_cast<uint32_t>(master[i])).weight;
    }
    storage = Store<T>(GradientOf(parameter, i, Load(&storage), sample));
    for (int use = 1; use < run.model.parameters[parameter].backward_uses; ++use) {
      storage = Store<T>(Load(&storage) + Noise(parameter, i, 99, 1));
    }
    gradient[i] = Load(&storage);
  }
  return gradient;
}

// The sum over the micro-batches, rounded once: ZeRO's first stage.
template <typename T>
std::vector<float> SummedRankGradient(const SyntheticRun& run, uint32_t parameter,
                                      const std::vector<float>& master, int step, int rank) {
  const float scale = 1.0f / static_cast<float>(run.options.accumulate);
  std::vector<float> sum(master.size(), 0.0f);
  for (int micro = 0; micro < run.options.accumulate; ++micro) {
    const std::vector<float> one = RankGradient<T>(run, parameter, master, {rank, step, micro, 1});
    for (uint64_t i = 0; i < sum.size(); ++i) {
      const float scaled = scale * one[i];
      sum[i] += scaled;
    }
  }
  for (float& value : sum) {
    const T rounded = Store<T>(value);
    value = Load(&rounded);
  }
  return sum;
}

// Adds in the order of the ranks, and rounds once.
template <typename T>
std::vector<float> MeanOverRanks(const std::vector<std::vector<float>>& ranks) {
  std::vector<float> mean = ranks.front();
  if (ranks.size() == 1) return mean;
  for (uint64_t i = 0; i < mean.size(); ++i) {
    for (size_t rank = 1; rank < ranks.size(); ++rank) mean[i] += ranks[rank][i];
    const T rounded = Store<T>(mean[i] * (1.0f / static_cast<float>(ranks.size())));
    mean[i] = Load(&rounded);
  }
  return mean;
}

bool SumsBeforeReducing(const SyntheticRun& run) {
  return run.options.stage == Stage::kState && run.options.accumulate > 1;
}

template <typename T>
std::vector<float> MeanGradient(const SyntheticRun& run, uint32_t parameter,
                                const std::vector<float>& master, int step, int micro) {
  std::vector<std::vector<float>> ranks;
  for (int rank = 0; rank < run.world_size; ++rank) {
    ranks.push_back(SumsBeforeReducing(run)
                        ? SummedRankGradient<T>(run, parameter, master, step, rank)
                        : RankGradient<T>(run, parameter, master, {rank, step, micro, 1}));
  }
  return MeanOverRanks<T>(ranks);
}

struct DenseState {
  std::vector<float> master;
  std::vector<float> arrays[kernels::kMaxStateArrays];
  std::vector<float> factors;
};

// Updates with AdamW's own kernel.
void UpdateByAdamW(const AdamWOptions& adamw, const Parameter& parameter, int updates,
                   double grad_scale, const std::vector<float>& gradient, DenseState* state) {
  kernels::AdamWOptions options;
  options.grad_scale = grad_scale;
  options.learning_rate = kLearningRate * parameter.learning_rate_scale;
  options.beta1 = adamw.beta1;
  options.beta2 = adamw.beta2;
  options.epsilon = adamw.epsilon;
  options.weight_decay = parameter.decay ? parameter.weight_decay.value_or(adamw.weight_decay) : 0;
  options.step = static_cast<uint64_t>(updates) + 1;
  const kernels::Status status = kernels::AdamWMasterInPlace(
      options, {state->master.data(), state->arrays[0].data(), state->arrays[1].data()},
      gradient.data(), gradient.size());
  if (status != kernels::Status::kOk) std::abort();
}

DenseState InitialState(const SyntheticRun& run, uint32_t parameter) {
  DenseState state;
  state.master.resize(ElementsOf(run.model.parameters[parameter]));
  for (std::vector<float>& array : state.arrays) array.resize(state.master.size());
  for (uint64_t i = 0; i < state.master.size(); ++i) state.master[i] = InitialValue(parameter, i);
  return state;
}

bool IsGivenGradients(const SyntheticRun& run, uint32_t parameter) {
  bool used = false;
  for (const auto& parameters : run.model.operators) {
    used |= std::find(parameters.begin(), parameters.end(), parameter) != parameters.end();
  }
  return used && run.model.parameters[parameter].trainable;
}

// The parameter's term of DenseResult::mean_squares.
double MeanSquare(const SyntheticRun& run, uint32_t parameter, const std::vector<float>& master,
                  int step) {
  if (!IsGivenGradients(run, parameter)) return 0;
  const bool is_bf16 = TypeOf(run.model.parameters[parameter], run.options) == DataType::kBFloat16;
  double sum = 0;
  for (int rank = 0; rank < run.world_size; ++rank) {
    for (int micro = 0; micro < run.options.accumulate; ++micro) {
      const Sample sample = {rank, step, micro, 1};
      for (const float value : is_bf16 ? RankGradient<BFloat16>(run, parameter, master, sample)
                                       : RankGradient<float>(run, parameter, master, sample)) {
        sum += double{value} * double{value};
      }
    }
  }
  return sum / (run.world_size * run.options.accumulate);
}

// The sum over all micro-batches of the step. Zeros if the parameter is frozen or unused.
std::vector<float> StepGradient(const SyntheticRun& run, uint32_t parameter,
                                const std::vector<float>& master, int step) {
  std::vector<float> gradient(master.size(), 0.0f);
  if (!IsGivenGradients(run, parameter)) return gradient;
  const int reduced = SumsBeforeReducing(run) ? 1 : run.options.accumulate;
  const float scale = 1.0f / static_cast<float>(reduced);
  for (int micro = 0; micro < reduced; ++micro) {
    const std::vector<float> mean =
        TypeOf(run.model.parameters[parameter], run.options) == DataType::kBFloat16
            ? MeanGradient<BFloat16>(run, parameter, master, step, micro)
            : MeanGradient<float>(run, parameter, master, step, micro);
    for (uint64_t i = 0; i < gradient.size(); ++i) {
      if (reduced == 1) {
        gradient[i] = mean[i];
      } else {
        const float scaled = scale * mean[i];
        gradient[i] += scaled;
      }
    }
  }
  return gradient;
}

// Updates a whole tensor as one segment of one rank.
void UpdateDensely(const SyntheticRun& run, const Parameter& parameter, int updates,
                   double grad_scale, const std::vector<float>& gradient, DenseState* state) {
  if (const auto* adamw = std::get_if<AdamWOptions>(&run.options.optimizer)) {
    return UpdateByAdamW(*adamw, parameter, updates, grad_scale, gradient, state);
  }
  kernels::TensorOptions tensor;
  tensor.shape.cols = static_cast<uint64_t>(parameter.shape.back());
  tensor.shape.rows = gradient.size() / tensor.shape.cols;
  tensor.learning_rate_scale = parameter.learning_rate_scale;
  tensor.weight_decay = parameter.decay ? parameter.weight_decay : 0;
  if (IsMatrix(parameter, run.options.optimizer)) {
    tensor.matrix_rows = static_cast<uint64_t>(*(parameter.shape.end() - 2));
  }
  kernels::ShardedStep step(ToKernel(run.options.optimizer), {tensor});
  state->factors.resize(step.FactorTotal());
  kernels::ParameterArrays arrays;
  arrays.master = state->master.data();
  for (int i = 0; i < kernels::kMaxStateArrays; ++i) arrays.state[i] = state->arrays[i].data();
  kernels::Segment segment;
  segment.tensor = 0;
  segment.count = gradient.size();
  segment.arrays = arrays.View();
  segment.gradient = gradient.data();
  kernels::StepScalars scalars;
  scalars.step = static_cast<uint64_t>(updates) + 1;
  scalars.learning_rate = kLearningRate;
  scalars.grad_scale = grad_scale;
  const auto alone = [](std::span<double>) { return true; };
  kernels::Status status = step.Prepare(scalars, std::span(&segment, 1), state->factors.data(),
                                        alone, state->factors.data());
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  size_t bytes = 0;
  if (status == kernels::Status::kOk) status = step.MatrixWorkspaceBytes(1, &bytes);
  std::vector<Line> workspace((bytes + sizeof(Line) - 1) / sizeof(Line));
  step.SetMatrixWorkspace({reinterpret_cast<std::byte*>(workspace.data()), bytes});
  if (status == kernels::Status::kOk) {
    status = step.OfMatrices(segment) ? step.ApplyMatrices(segment, arrays, nullptr)
                                      : step.Apply(segment, arrays);
  }
  if (status != kernels::Status::kOk) std::abort();
}

// Rounds the state to bf16 as Options::state_type describes, element by element.
void RoundState(const Parameter& parameter, int updates, DenseState* state) {
  base::Fnv1a name;
  name.AddText(parameter.name);
  const uint64_t seed = kernels::RoundingSeed(name.value(), static_cast<uint64_t>(updates) + 1);
  for (uint64_t i = 0; i < state->master.size(); ++i) {
    const uint32_t random =
        kernels::RoundingBits(kernels::RoundingKey(seed, i >> 32), static_cast<uint32_t>(i));
    float& first = state->arrays[0][i];
    float& second = state->arrays[1][i];
    first = kernels::RoundStochastically(first, random & 0xFFFFu).ToFloat();
    second = kernels::RoundStochastically(second, random >> 16).ToFloat();
  }
}

}  // namespace

SyntheticModel SmallModel() {
  SyntheticModel model;
  const auto add = [&](const char* name, std::vector<int64_t> shape, bool decay = true) {
    Parameter parameter;
    parameter.name = name;
    parameter.shape = std::move(shape);
    parameter.decay = decay;
    model.parameters.push_back(parameter);
    return static_cast<uint32_t>(model.parameters.size() - 1);
  };
  const uint32_t embedding = add("embedding", {256, 48});
  model.parameters[embedding].backward_uses = 2;
  model.operators.push_back({embedding});
  for (int layer = 0; layer < 6; ++layer) {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    const uint32_t norm = add((prefix + "norm").c_str(), {48}, /*decay=*/false);
    const uint32_t up = add((prefix + "up").c_str(), {192 + layer, 48});
    const uint32_t bias = add((prefix + "bias").c_str(), {192 + layer}, /*decay=*/false);
    const uint32_t down = add((prefix + "down").c_str(), {48, 192 + layer});
    model.operators.push_back({norm, up, bias});
    model.operators.push_back({down});
  }
  const uint32_t large = add("large", {70, 1024});
  model.operators.push_back({large});
  model.operators.push_back({embedding});
  return model;
}

SyntheticModel MixedModel(DataType other) {
  SyntheticModel model = SmallModel();
  for (Parameter& parameter : model.parameters) {
    const bool is_vector = parameter.shape.size() == 1;
    if (is_vector || parameter.name == "layer.2.up" || parameter.name == "large") {
      parameter.data_type = other;
    }
  }
  return model;
}

namespace {

// Adds one rank's part of a model. The parts have the same parameters with other names.
void AddPart(const SyntheticRun& run, int rank, std::vector<Parameter>* parameters) {
  for (Parameter parameter : run.model.parameters) {
    parameter.name = std::to_string(rank) + "." + parameter.name;
    parameters->push_back(std::move(parameter));
  }
}

// The norm over engines that train parts of one model.
absl::StatusOr<double> NormOfAll(Engine* engine, collectives::Communicator* ranks) {
  const absl::StatusOr<double> own = engine->GradientNorm();
  if (!own.ok()) return own.status();
  std::vector<double> squares = {*own * *own};
  const absl::Status status = ranks->AllReduce(squares, squares, collectives::ReduceOp::kSum);
  if (!status.ok()) return status;
  return std::sqrt(squares[0]);
}

// The communicator of the rank's host. The last host may have fewer ranks.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> RanksOfHost(
    const SyntheticRun& run, int rank, collectives::Communicator* ranks) {
  const int first = rank - rank % run.ranks_per_host;
  std::vector<int> here;
  for (int r = first; r < std::min(first + run.ranks_per_host, run.world_size); ++r) {
    here.push_back(r);
  }
  return ranks->Subset("host", here);
}

}  // namespace

absl::Status TrainOneRank(const SyntheticRun& run, int rank,
                          collectives::Communicator* communicator, SyntheticResult* result) {
  result->statistics.resize(static_cast<size_t>(run.world_size));
  result->exchanged.resize(static_cast<size_t>(run.world_size));
  ConnectOptions connect;
  connect.socket = run.socket;
  connect.job = run.job;
  connect.run = run.run;
  connect.keep_on_death = !run.run.empty();
  connect.admission = run.admission;
  connect.rank = rank;
  connect.world_size = run.world_size;
  connect.local_rank = rank;
  connect.device_memory_bytes = run.arena_bytes;
  connect.copy_bytes_per_second = run.copy_bytes_per_second;
  connect.strict_device = true;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
  if (!session.ok()) return session.status();
  Options options = run.options;
  absl::Time clock = absl::UnixEpoch();
  if (!options.clock) options.clock = [&clock] { return clock; };
  const std::unique_ptr<collectives::Communicator> alone = collectives::MakeSelfCommunicator();
  std::vector<Parameter> parameters = run.model.parameters;
  if (run.apart) {
    options.all_ranks = communicator;
    if (NeedsSums(options.optimizer)) {
      for (int r = 0; r < run.world_size; ++r) AddPart(run, r, &options.model);
      parameters.clear();
      AddPart(run, rank, &parameters);
    }
  }
  std::unique_ptr<collectives::Communicator> host;
  if (run.ranks_per_host > 0) {
    auto made = RanksOfHost(run, rank, communicator);
    if (!made.ok()) return made.status();
    host = *std::move(made);
    options.host_ranks = host.get();
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(session->get(), run.apart ? alone.get() : communicator, parameters, options);
  if (!engine.ok()) return engine.status();
  bool done = false;
  const absl::Cleanup leave = [&] {
    if (!done && !run.run.empty()) (*session)->LeaveToSuccessor();
  };
  const auto fill = [](ParameterId id, std::span<float> values) {
    for (uint64_t i = 0; i < values.size(); ++i) {
      values[i] = InitialValue(static_cast<uint32_t>(id), i);
    }
    return absl::OkStatus();
  };
  const std::optional<Resumed> resumed = (*engine)->resumed();
  const int first_step = resumed.has_value() ? static_cast<int>(resumed->step) : run.first_step;
  absl::Status status;
  if (resumed.has_value()) {
    const absl::Status refused = (*engine)->Initialize(fill);
    if (!absl::IsFailedPrecondition(refused)) return absl::InternalError("it was initialised again");
  } else {
    status =
        run.prepare ? run.prepare(engine->get(), communicator, rank) : (*engine)->Initialize(fill);
  }
  ActivationStack* stack = nullptr;
  if (status.ok() && run.activation_places > 0) {
    const std::vector<uint64_t> items(run.model.operators.size(), run.activation_bytes);
    const absl::StatusOr<ActivationStack*> made =
        (*engine)->MakeActivationStack({.item_bytes = items, .places = run.activation_places});
    status = made.status();
    if (made.ok()) stack = *made;
  }
  for (int step = first_step; status.ok() && step < run.steps; ++step) {
    if (run.before_step) status = run.before_step(rank, step);
    if (status.ok()) status = (*engine)->BeginStep({.learning_rate = kLearningRate});
    for (int micro = 0; status.ok() && micro < run.options.accumulate; ++micro) {
      const float loss_scale = static_cast<float>((*engine)->loss_scale());
      status = RunMicroBatch({session->get(), engine->get(), stack}, run,
                             {rank, step, micro, loss_scale, &clock});
    }
    if (!status.ok()) break;
    Engine::StepInput input = {.learning_rate = kLearningRate};
    if (run.apart) {
      auto norm = NormOfAll(engine->get(), communicator);
      if (!norm.ok()) return norm.status();
      input.gradient_norm = *norm;
    }
    absl::StatusOr<StepResult> outcome = (*engine)->Step(input);
    if (!outcome.ok()) return outcome.status();
    if (rank == 0) result->steps.push_back(*outcome);
    if (run.between_steps) run.between_steps(engine->get(), rank, step);
  }
  if (status.ok() && run.before_end) status = run.before_end(rank);
  if (!status.ok()) {
    communicator->Abort("rank " + std::to_string(rank) +
                        " stopped: " + std::string(status.message()));
    return status;
  }
  for (uint32_t parameter = 0; parameter < run.model.parameters.size(); ++parameter) {
    absl::StatusOr<std::vector<float>> values = (*engine)->ReadParameter(ParameterId{parameter});
    if (!values.ok()) return values.status();
    if (rank == 0) result->weights.push_back(*std::move(values));
  }
  absl::StatusOr<Statistics> statistics = (*engine)->GetStatistics();
  if (!statistics.ok()) return statistics.status();
  result->statistics[static_cast<size_t>(rank)] = *std::move(statistics);
  result->exchanged[static_cast<size_t>(rank)] = communicator->Stats();
  done = true;
  return absl::OkStatus();
}

std::vector<absl::Status> TrainStatuses(const SyntheticRun& run, SyntheticResult* result) {
  // Done before the ranks' threads read them.
  result->statistics.resize(static_cast<size_t>(run.world_size));
  result->exchanged.resize(static_cast<size_t>(run.world_size));
  std::vector<std::unique_ptr<collectives::Communicator>> communicators =
      collectives::MakeLocalCommunicators(run.world_size);
  std::vector<absl::Status> statuses(static_cast<size_t>(run.world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < run.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const size_t index = static_cast<size_t>(rank);
      statuses[index] = TrainOneRank(run, rank, communicators[index].get(), result);
      if (!statuses[index].ok())
        communicators[index]->Abort(std::string(statuses[index].message()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::StatusOr<SyntheticResult> Train(const SyntheticRun& run) {
  SyntheticResult result;
  for (const absl::Status& status : TrainStatuses(run, &result)) {
    if (!status.ok()) return status;
  }
  return result;
}

DenseResult RunDensely(const SyntheticRun& run) {
  const size_t parameters = run.model.parameters.size();
  DenseResult result;
  std::vector<DenseState> states;
  for (uint32_t p = 0; p < parameters; ++p) states.push_back(InitialState(run, p));
  int updates = 0;
  for (int step = 0; step < run.steps; ++step) {
    if (step == run.overflow_step) {
      result.gradient_norms.push_back(std::numeric_limits<double>::infinity());
      result.mean_squares.push_back(std::numeric_limits<double>::infinity());
      continue;
    }
    std::vector<std::vector<float>> gradients(parameters);
    double squares = 0;
    result.mean_squares.push_back(0);
    for (uint32_t p = 0; p < parameters; ++p) {
      result.mean_squares.back() += MeanSquare(run, p, states[p].master, step);
      gradients[p] = StepGradient(run, p, states[p].master, step);
      for (float value : gradients[p]) squares += double{value} * double{value};
    }
    const double norm = std::sqrt(squares);
    result.gradient_norms.push_back(norm);
    const double limit = run.options.clip_norm;
    const double clip = limit > 0 ? std::min(1.0, limit / (norm + kClipEpsilon)) : 1.0;
    for (uint32_t p = 0; p < parameters; ++p) {
      const Parameter& parameter = run.model.parameters[p];
      if (!parameter.trainable) continue;
      UpdateDensely(run, parameter, updates, clip, gradients[p], &states[p]);
      if (run.options.state_type == DataType::kBFloat16) {
        RoundState(parameter, updates, &states[p]);
      }
    }
    ++updates;
  }
  for (uint32_t p = 0; p < parameters; ++p) {
    const Parameter& parameter = run.model.parameters[p];
    if (!parameter.trainable && TypeOf(parameter, run.options) == DataType::kBFloat16) {
      for (float& value : states[p].master) {
        value = kernels::SplitMasterBits(std::bit_cast<uint32_t>(value)).weight.ToFloat();
      }
    }
    result.weights.push_back(std::move(states[p].master));
  }
  return result;
}

std::vector<std::vector<float>> TrainDensely(const SyntheticRun& run) {
  return RunDensely(run).weights;
}

}  // namespace geminid::zero
