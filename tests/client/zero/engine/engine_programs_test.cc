// Random programs through the public interface. They vary the arena, the placement, the number of
// ranks, shards within hosts, the parameters' types and addresses, workspace of another thread, and
// steps that are cancelled halfway. The weights must equal those of an arena in which everything
// fits, or there must be a clean error. After an error a single rank goes on with the weights of
// its last step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tests/client/zero/core/random_program.h"
#include "tests/client/zero/engine/workspace_beside.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using kernels::BFloat16;
using Kind = SimulatedOperator::Kind;

constexpr int64_t kElements = 1000;
constexpr uint64_t kBlockBytes = 4096;

float Noise(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull + c * 0x94d049bb133111ebull;
  x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93ull;
  return static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) / (1 << 23);
}

// A third of the programs is in bf16, a third in fp32, and a third mixes both.
DataType TypeOf(const SimulatedProgram& program, uint32_t parameter) {
  const uint32_t mix = program.seed % 3;
  const bool bf16 = mix == 0 || (mix == 1 && program.parameters[parameter].chunk % 2 == 0);
  return bf16 ? DataType::kBFloat16 : DataType::kFloat32;
}

// A parameter's elements in memory.
class Values {
 public:
  Values(const std::byte* data, DataType type) : data_(const_cast<std::byte*>(data)), type_(type) {}

  float Load(size_t i) const {
    return type_ == DataType::kFloat32 ? reinterpret_cast<const float*>(data_)[i]
                                       : reinterpret_cast<const BFloat16*>(data_)[i].ToFloat();
  }
  void Store(size_t i, float value) const {
    if (type_ == DataType::kFloat32) {
      reinterpret_cast<float*>(data_)[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(data_)[i] = BFloat16::FromFloat(value);
    }
  }

 private:
  std::byte* data_;
  DataType type_;
};

using Weights = std::vector<std::vector<float>>;

struct Outcome {
  absl::Status status;
  Weights weights{};
  std::vector<Weights> of_steps{};  // for one rank: at the start and after each step
  size_t steps = 0;                 // completed steps
};

// How a rank computes.
enum class Form {
  kBlocking,  // in the thread of its calls
  kStream,    // on a stream that lags behind by a random time
};

// Choices that must not change a bit.
struct Way {
  Placement placement = Placement::kAuto;
  Form form = Form::kBlocking;
  int ranks_per_host = 0;         // above 0: weights are sharded within hosts of so many ranks
  bool workspace_beside = false;  // another thread takes blocks and returns them
  bool gives_up = false;  // cancels some steps before their last operators, and repeats them
};

// One rank's program.
class Runner {
 public:
  Runner(const SimulatedProgram& program, Session* session, Engine* engine, int rank,
         const Way& way)
      : program_(program),
        session_(session),
        engine_(engine),
        rank_(rank),
        way_(way),
        stream_(way.form == Form::kStream ? &session->compute_stream() : nullptr),
        random_(program.seed + static_cast<uint32_t>(rank)) {}

  // Cancels a refused program: no operation is open, and no step is half done.
  absl::Status GiveUp() { return engine_->CancelMicroBatch(); }
  // Called after each step, and once before the first.
  void BetweenSteps(std::function<absl::Status()> act) { between_steps_ = std::move(act); }

  absl::Status Run() {
    if (!way_.workspace_beside) return RunAlone();
    WorkspaceBeside beside(session_, engine_, kBlockBytes, program_.seed + static_cast<uint32_t>(rank_));
    absl::Status status = RunAlone();
    status.Update(beside.End());
    return status;
  }

 private:
  absl::Status RunAlone() {
    absl::Status status = RunProgram();
    if (stream_ == nullptr) return status.ok() ? failure_ : status;
    if (status.ok()) status = engine_->Synchronize();
    stream_->Synchronize();  // the stream's work refers to this object
    return status.ok() ? failure_ : status;
  }

  absl::Status RunProgram() {
    absl::Status status = engine_->Initialize([](ParameterId id, std::span<float> values) {
      for (uint64_t i = 0; i < values.size(); ++i) {
        values[i] = Noise(static_cast<uint64_t>(id), i, 0);
      }
      return absl::OkStatus();
    });
    if (status.ok()) status = between_steps_();
    for (size_t first = 0; status.ok() && first < program_.micro_batches.size();) {
      const size_t end = EndOfStep(first);
      if (GivesUp(first)) status = GiveUpStep(first, end);
      if (status.ok()) status = MicroBatches(first, end, /*all_operators=*/true);
      if (status.ok()) status = engine_->Step({.learning_rate = 0.01}).status();
      if (status.ok()) status = between_steps_();
      first = end;
    }
    return status;
  }

  // The end of the step that begins with this micro-batch. The last step is shorter if the data run
  // out.
  size_t EndOfStep(size_t first) const {
    int in_step = 0;
    for (size_t m = first; m < program_.micro_batches.size(); ++m) {
      if (++in_step == program_.accumulate + (m == 1 ? 1 : 0)) return m + 1;
    }
    return program_.micro_batches.size();
  }

  // The same on all ranks.
  bool GivesUp(size_t first) const { return way_.gives_up && (program_.seed + first) % 3 != 0; }

  // The cancelled micro-batches must leave no trace.
  absl::Status GiveUpStep(size_t first, size_t end) {
    Do([this] { before_step_ = {contributions_, last_}; });
    absl::Status status = MicroBatches(first, end, /*all_operators=*/false);
    if (status.ok()) status = engine_->CancelMicroBatch();
    Do([this] { std::tie(contributions_, last_) = before_step_; });
    return status;
  }

  // `all_operators` false: leaves out some of the last operators.
  absl::Status MicroBatches(size_t first, size_t end, bool all_operators) {
    absl::Status status;
    for (size_t m = first; status.ok() && m < end; ++m) {
      micro_batch_ = m;
      const SimulatedMicroBatch& batch = program_.micro_batches[m];
      // Within a step, some gradients may still occupy the place of their weights.
      if (m == first) status = Operators(batch.evaluated_before);
      if (status.ok()) status = engine_->BeginMicroBatch();
      if (!status.ok()) return status;
      const bool whole = all_operators || m + 1 < end;
      status = Operators(std::span(batch.operators)
                             .first(whole ? batch.operators.size() : batch.operators.size() / 2));
    }
    return status;
  }

  void Do(std::function<void()> work) {
    if (stream_ == nullptr) return work();
    const uint32_t lag = random_() % 4 == 0 ? random_() % 2000 : 0;
    stream_->Enqueue([work = std::move(work), lag] {
      for (uint32_t i = 0; i < lag; ++i) std::this_thread::yield();
      work();
    });
  }
  StreamHandle handle() const { return {stream_}; }

  absl::Status Operators(std::span<const SimulatedOperator> operators) {
    std::map<size_t, Operation> open;
    std::map<int, Workspace::Block> kept;
    for (size_t i = 0; i < operators.size(); ++i) {
      const SimulatedOperator& op = operators[i];
      std::vector<ParameterId> ids;
      for (uint32_t p : op.parameters) ids.push_back(ParameterId{p});
      const Pass pass = op.kind == Kind::kBackward   ? Pass::kBackward
                        : op.kind == Kind::kEvaluate ? Pass::kEvaluate
                                                     : Pass::kForward;
      absl::StatusOr<Operation> operation =
          stream_ == nullptr ? engine_->Use(pass, ids) : engine_->Use(pass, ids, handle());
      if (!operation.ok()) return operation.status();
      Workspace::Block scratch;
      if (absl::Status status = Allocate(op, i, &kept[static_cast<int>(i)], &scratch);
          !status.ok()) {
        return status;
      }
      absl::Status status = Compute(op, &*operation);
      open.emplace(i, *std::move(operation));
      for (size_t j = 0; j <= i && status.ok(); ++j) {
        if (!open.contains(j) || j + static_cast<size_t>(operators[j].open_for) != i) continue;
        status = open.at(j).Finish();
        open.erase(j);
      }
      for (uint32_t p : op.adds_gradients) {
        if (status.ok()) status = AddGradient(p);
      }
      if (status.ok() && op.mate >= 0) {
        CheckBlock(kept[op.mate]);
        kept.erase(op.mate);
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Allocate(const SimulatedOperator& op, size_t i, Workspace::Block* kept,
                        Workspace::Block* scratch) {
    const uint64_t extra = op.keeps_units > 0 ? ExtraUnits(program_, rank_, micro_batch_) : 0;
    for (auto [units, block] :
         {std::pair{op.keeps_units + extra, kept}, std::pair{op.scratch_units, scratch}}) {
      if (units == 0) continue;
      absl::StatusOr<Workspace::Block> made = engine_->workspace().Allocate(units * kBlockBytes);
      if (!made.ok()) return made.status();
      Do([to = session_->HostAddress(made->data()), bytes = made->bytes(), i] {
        std::memset(to, static_cast<int>(i), bytes);
      });
      *block = *std::move(made);
    }
    return absl::OkStatus();
  }

  void CheckBlock(const Workspace::Block& block) {
    Do([this, kept = session_->HostAddress(block.data()), bytes = block.bytes()] {
      for (uint64_t at = 1; at < bytes; ++at) {
        if (kept[at] != kept[0]) failure_ = absl::DataLossError("workspace overwritten");
      }
    });
  }

  // Uses the present weights, whatever operators are open.
  absl::Status Compute(const SimulatedOperator& op, Operation* operation) {
    for (uint32_t p : op.parameters) {
      const ParameterId id{p};
      const DataType type = TypeOf(program_, p);
      const std::byte* const weight = session_->HostAddress(operation->Weight(id));
      if (weight == nullptr) return absl::InternalError("no weight");
      if (const std::byte* const stable = engine_->StableAddress(id);
          stable != nullptr && stable != operation->Weight(id)) {
        return absl::InternalError("the weight is not at its address");
      }
      Do([this, p, from = Values(weight, type)] {
        last_[p].resize(kElements);
        for (size_t i = 0; i < kElements; ++i) last_[p][i] = from.Load(i);
      });
      if (op.kind != Kind::kBackward || !op.writes_gradients || !program_.parameters[p].trainable) {
        continue;
      }
      std::byte* const gradient = session_->HostAddress(operation->Gradient(id));
      if (gradient == nullptr) return absl::InternalError("no gradient");
      const bool accumulates = operation->GradientAccumulates(id);
      Do([this, p, to = Values(gradient, type), accumulates] {
        const std::vector<float> values = GradientOf(p);
        for (size_t i = 0; i < values.size(); ++i) {
          to.Store(i, accumulates ? to.Load(i) + values[i] : values[i]);
        }
      });
      if (absl::Status status = operation->GradientWritten(id); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::vector<float> GradientOf(uint32_t p) {
    std::vector<float> values(kElements);
    ++contributions_;
    for (uint64_t i = 0; i < values.size(); ++i) {
      values[i] = 0.25f * last_[p][i] +
                  Noise(p * 131 + static_cast<uint64_t>(rank_), i, contributions_ + 7);
    }
    return values;
  }

  absl::Status AddGradient(uint32_t p) {
    auto values = std::make_shared<std::vector<float>>(kElements);
    Do([this, p, values] { std::ranges::copy(GradientOf(p), values->begin()); });
    const auto bytes = std::as_bytes(std::span(*values));
    if (stream_ == nullptr) {
      return engine_->AddGradient(ParameterId{p}, bytes, DataType::kFloat32);
    }
    absl::Status status = engine_->AddGradient(ParameterId{p}, bytes, DataType::kFloat32, handle());
    Do([values] {});
    return status;
  }

  const SimulatedProgram& program_;
  Session* const session_;
  Engine* const engine_;
  const int rank_;
  const Way& way_;
  size_t micro_batch_ = 0;
  uint64_t contributions_ = 0;
  std::map<uint32_t, std::vector<float>> last_;  // the weights that an operator saw last
  // Both of these, before the cancelled step.
  std::tuple<uint64_t, std::map<uint32_t, std::vector<float>>> before_step_;
  absl::Status failure_;     // of the stream's work; read after it is complete
  Stream* const stream_;     // null: no stream
  std::minstd_rand random_;  // only for times
  std::function<absl::Status()> between_steps_;
};

class EngineProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  // The communicator of a host with `count` ranks; null: weights are not sharded within hosts.
  static std::unique_ptr<collectives::Communicator> RanksOfHost(int count, int rank,
                                                                collectives::Communicator* all) {
    if (count == 0) return nullptr;
    std::vector<int> here;
    for (int i = 0; i < count; ++i) here.push_back(rank - rank % count + i);
    return *all->Subset("host", here);
  }

  Outcome RunRank(const SimulatedProgram& program, int rank, uint64_t arena_bytes, const Way& way,
                  collectives::Communicator* communicator) {
    Outcome outcome;
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.rank = connect.local_rank = rank;
    connect.world_size = program.ranks;
    connect.device_memory_bytes = arena_bytes;
    connect.strict_device = true;
    auto session = Session::Connect(connect);
    if (!session.ok()) return {.status = session.status()};
    std::vector<Parameter> parameters;
    for (const SimulatedParameter& parameter : program.parameters) {
      Parameter made;
      made.name = "parameter " + std::to_string(parameters.size());
      made.shape = {kElements};
      made.data_type = TypeOf(program, static_cast<uint32_t>(parameters.size()));
      made.trainable = parameter.trainable;
      made.backward_uses = parameter.backward_uses;
      made.separate_gradient = IsSeparate(program, parameter.chunk);
      parameters.push_back(made);
    }
    Options options;
    options.placement = way.placement;
    const auto host = RanksOfHost(way.ranks_per_host, rank, communicator);
    options.host_ranks = host.get();
    options.stable_addresses = program.seed / 3 % 2 == 0;
    options.state_placement = StatePlacement::kHost;
    options.chunk_elements = 2048;
    options.accumulate = std::max(program.accumulate, 2);
    options.timeout = absl::Seconds(60);
    auto engine = Engine::Create(session->get(), communicator, parameters, options);
    outcome.status = engine.status();
    if (engine.ok()) RunOn(program, session->get(), engine->get(), rank, way, &outcome);
    if (!outcome.status.ok()) communicator->Abort(std::string(outcome.status.message()));
    return outcome;
  }

  static absl::StatusOr<Weights> Read(const SimulatedProgram& program, Engine* engine) {
    Weights weights;
    for (uint32_t p = 0; p < program.parameters.size(); ++p) {
      auto values = engine->ReadParameter(ParameterId{p});
      if (!values.ok()) return values.status();
      weights.push_back(*std::move(values));
    }
    return weights;
  }

  static void RunOn(const SimulatedProgram& program, Session* session, Engine* engine, int rank,
                    const Way& way, Outcome* outcome) {
    Runner runner(program, session, engine, rank, way);
    runner.BetweenSteps([&] {
      ++outcome->steps;
      if (program.ranks > 1) return absl::OkStatus();
      absl::StatusOr<Weights> weights = Read(program, engine);
      if (weights.ok()) outcome->of_steps.push_back(*std::move(weights));
      return weights.status();
    });
    outcome->status = runner.Run();
    const bool goes_on = outcome->status.ok() || (program.ranks == 1 && engine->health().ok());
    if (!goes_on) return;
    absl::Status given_up = outcome->status.ok() ? absl::OkStatus() : runner.GiveUp();
    absl::StatusOr<Weights> weights = given_up.ok() ? Read(program, engine) : given_up;
    if (weights.ok()) {
      outcome->weights = *std::move(weights);
    } else {
      outcome->status = weights.status();
    }
  }

  std::vector<Outcome> Run(const SimulatedProgram& program, uint64_t arena_bytes, const Way& way) {
    auto communicators = collectives::MakeLocalCommunicators(program.ranks);
    std::vector<Outcome> outcomes(static_cast<size_t>(program.ranks));
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        outcomes[rank] =
            RunRank(program, static_cast<int>(rank), arena_bytes, way, communicators[rank].get());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  geminid::testing::DaemonEnv env_;
};

bool SameBits(const Weights& a, const Weights& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// A call may fail at once, or when workspace finds no room. One rank reports it, and the others
// repeat it.
bool IsRefusalForWantOfMemory(const absl::Status& status) {
  const bool says_so = absl::StrContains(status.message(), " does not fit") ||
                       absl::StrContains(status.message(), " has no room for a workspace block ");
  return says_so && (status.code() == absl::StatusCode::kResourceExhausted ||
                     status.code() == absl::StatusCode::kAborted);
}

TEST_F(EngineProgramsTest, AnyArenaAndPlacement_GivesTheWeightsOfAnAmpleOne) {
  const char* const wanted = std::getenv("GEMINID_ENGINE_PROGRAMS");
  const uint32_t programs =
      wanted == nullptr ? 30 : static_cast<uint32_t>(std::strtoul(wanted, nullptr, 10));
  int right = 0;
  int refused = 0;
  int went_on = 0;
  for (uint32_t seed = 1; seed <= programs; ++seed) {
    SimulatedProgram program = MakeRandomProgram(seed);
    program.ranks = seed % 6 == 0 ? 4 : std::min(program.ranks, 2);
    const std::vector<Outcome> ample = Run(program, 4 << 20, {});
    for (const Outcome& outcome : ample) {
      ASSERT_TRUE(outcome.status.ok()) << "program " << seed << ": " << outcome.status;
      ASSERT_TRUE(SameBits(outcome.weights, ample[0].weights)) << "program " << seed;
    }
    for (uint64_t units : {6u + seed % 7, 14u + seed % 11, 28u}) {
      Way way;
      way.placement = (seed + units) % 3 == 0 ? Placement::kCpu : Placement::kAuto;
      way.form = (seed / 2 + units) % 2 == 0 ? Form::kStream : Form::kBlocking;
      // Blocks are reused in the order of calls, and a stream lags behind its calls.
      way.workspace_beside = way.form == Form::kBlocking && (seed / 4 + units) % 3 != 0;
      way.gives_up = (seed / 3 + units) % 2 == 0;
      if (program.ranks > 1 && (seed + units) % 4 != 0) way.ranks_per_host = program.ranks / 2;
      const std::vector<Outcome> tight = Run(program, units * kBlockBytes, way);
      for (const Outcome& outcome : tight) {
        SCOPED_TRACE(::testing::Message()
                     << "program " << seed << ", arena of " << units << " units, "
                     << (way.form == Form::kStream ? "on a stream, " : "")
                     << (way.workspace_beside ? "workspace beside, " : "")
                     << (way.gives_up ? "steps given up, " : "") << way.ranks_per_host
                     << " ranks a host: " << outcome.status);
        ASSERT_EQ(outcome.status.ok(), tight[0].status.ok());
        if (outcome.status.ok()) {
          ASSERT_TRUE(SameBits(outcome.weights, ample[0].weights));
          ++right;
        } else {
          ASSERT_TRUE(IsRefusalForWantOfMemory(outcome.status));
          ++refused;
          if (outcome.weights.empty()) continue;
          ASSERT_TRUE(SameBits(outcome.weights, ample[0].of_steps[outcome.steps - 1]));
          ++went_on;
        }
      }
    }
  }
  EXPECT_GT(right, refused) << "or nothing was shown";
  EXPECT_GT(went_on, 0) << "or nothing was shown of refusals";
}

}  // namespace
}  // namespace geminid::zero
