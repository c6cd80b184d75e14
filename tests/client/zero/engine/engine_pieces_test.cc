// Engines with slices of tensors, whose optimizers need whole tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 4;
constexpr uint64_t kArenaBytes = 1 << 20;

// A rank's part of a model.
struct Part {
  int engine = 0;  // ranks of the same engine shard its state
  std::vector<Parameter> parameters;
};

std::vector<Parameter> Model() {
  return {{.name = "columns", .shape = {12, 10}},
          {.name = "rows", .shape = {8, 6}},
          {.name = "more rows", .shape = {8, 6}},
          {.name = "bias", .shape = {10}, .decay = false},
          {.name = "table", .shape = {5, 7}, .weight_decay = 0.3},
          {.name = "of one part", .shape = {3, 4}, .learning_rate_scale = 0.5}};
}
enum Tensor : uint32_t { kColumns, kRows, kMoreRows, kBias, kTable, kOfOnePart };

// A matrix sliced by columns; two matrices whose rows alternate; a vector on both ranks; a table
// sliced by words, of which there are too few; and a parameter that only the first rank has.
std::vector<Parameter> HalfOf(uint64_t rank) {
  std::vector<Parameter> half = {{.name = "half of columns", .shape = {12, 5}},
                                 {.name = "rows+more rows", .shape = {8, 6}},
                                 {.name = "bias", .shape = {10}},
                                 {.name = "half of table", .shape = {3, 7}}};
  half[0].pieces = {{.tensor = kColumns,
                     .rows = 12,
                     .columns = 5,
                     .tensor_first = 5 * rank,
                     .tensor_stride = 10,
                     .stride = 5}};
  std::vector<TensorPiece>& turns = half[1].pieces.emplace();
  for (const Tensor tensor : {kMoreRows, kRows}) {
    turns.push_back({.tensor = tensor,
                     .rows = 4,
                     .columns = 6,
                     .tensor_first = 24 * rank,
                     .tensor_stride = 6,
                     .first = tensor == kRows ? 0u : 6u,
                     .stride = 12});
  }
  half[2].counts = rank == 0;
  half[3].pieces = {{.tensor = kTable,
                     .rows = rank == 0 ? 3u : 2u,
                     .columns = 7,
                     .tensor_first = 21 * rank,
                     .tensor_stride = 7,
                     .stride = 7}};
  if (rank == 0) half.push_back({.name = "of one part", .shape = {3, 4}});
  return half;
}

uint64_t ElementsOf(const Parameter& parameter) {
  uint64_t elements = 1;
  for (const int64_t size : parameter.shape) elements *= static_cast<uint64_t>(size);
  return elements;
}

// The first value of an element of a tensor.
float FirstValue(uint32_t tensor, uint64_t element) {
  return std::sin(static_cast<float>(1 + element * 7 + tensor * 31));
}
float Gradient(uint32_t tensor, uint64_t element, int step) {
  return (1 + static_cast<float>(tensor)) *
         std::cos(static_cast<float>(element * 3 + tensor * 17 + static_cast<uint64_t>(step) * 5));
}

using Values = std::vector<std::vector<float>>;

class EnginePiecesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  // The model's weights after some steps of ranks with these parts. Weights on several ranks must
  // agree.
  absl::StatusOr<Values> Train(const Optimizer& optimizer, const std::vector<Part>& parts) {
    auto worlds = collectives::MakeLocalCommunicators(static_cast<int>(parts.size()));
    Values all(Model().size());
    std::vector<std::vector<bool>> there(Model().size());
    for (size_t t = 0; t < all.size(); ++t) {
      all[t].resize(ElementsOf(Model()[t]));
      there[t].resize(all[t].size());
    }
    std::vector<Values> kept(parts.size());
    std::vector<absl::Status> statuses(parts.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      threads.emplace_back([&, rank] {
        statuses[rank] = TrainRank(optimizer, parts, rank, worlds[rank].get(), &kept[rank]);
        if (!statuses[rank].ok()) worlds[rank]->Abort(std::string(statuses[rank].message()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      if (absl::IsInvalidArgument(status)) return status;
    }
    for (const absl::Status& status : statuses) {
      if (!status.ok()) return status;
    }
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      for (size_t p = 0; p < parts[rank].parameters.size(); ++p) {
        ForEach(parts[rank].parameters[p], [&](uint32_t tensor, uint64_t element, uint64_t at) {
          const float value = kept[rank][p][at];
          if (there[tensor][element]) {
            EXPECT_EQ(value, all[tensor][element]) << "a copy differs";
          }
          all[tensor][element] = value;
          there[tensor][element] = true;
        });
      }
    }
    return all;
  }

  Values MustTrain(const Optimizer& optimizer, const std::vector<Part>& parts) {
    const absl::StatusOr<Values> values = Train(optimizer, parts);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : Values(Model().size());
  }

  // The tolerance is relative to the tensor's largest value.
  static void ExpectClose(const Values& got, const Values& expected) {
    constexpr double kTolerance = 1e-6;
    for (size_t t = 0; t < expected.size(); ++t) {
      ASSERT_EQ(got[t].size(), expected[t].size());
      double largest = 0, difference = 0;
      for (size_t i = 0; i < expected[t].size(); ++i) {
        largest = std::max(largest, std::abs(double{expected[t][i]}));
        difference = std::max(difference, std::abs(double{got[t][i]} - double{expected[t][i]}));
      }
      EXPECT_LE(difference, kTolerance * largest) << Model()[t].name;
    }
  }

 private:
  // Calls a function for each element of a parameter that belongs to a tensor, with its position
  // there.
  template <typename Call>
  static void ForEach(const Parameter& parameter, const Call& call) {
    std::vector<TensorPiece> pieces;
    if (parameter.pieces.has_value()) {
      pieces = *parameter.pieces;
    } else {
      for (uint32_t t = 0; t < Model().size(); ++t) {
        if (Model()[t].name == parameter.name) {
          pieces = {{.tensor = t, .columns = ElementsOf(parameter)}};
        }
      }
    }
    for (const TensorPiece& piece : pieces) {
      for (uint64_t row = 0; row < piece.rows; ++row) {
        for (uint64_t i = 0; i < piece.columns; ++i) {
          call(piece.tensor, piece.tensor_first + row * piece.tensor_stride + i,
               piece.first + row * piece.stride + i);
        }
      }
    }
  }

  absl::Status TrainRank(const Optimizer& optimizer, const std::vector<Part>& parts, size_t rank,
                         collectives::Communicator* world, Values* kept) {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = kArenaBytes;
    connect.rank = connect.local_rank = static_cast<int>(rank);
    connect.world_size = static_cast<int>(parts.size());
    auto session = Session::Connect(connect);
    if (!session.ok()) return session.status();
    std::vector<int> same;
    for (size_t r = 0; r < parts.size(); ++r) {
      if (parts[r].engine == parts[rank].engine) same.push_back(static_cast<int>(r));
    }
    auto ranks = world->Subset("of an engine", same);
    if (!ranks.ok()) return ranks.status();
    Options options = {.data_type = DataType::kFloat32, .clip_norm = 0, .optimizer = optimizer};
    if (same.size() < parts.size()) {
      options.all_ranks = world;
      options.model = Model();
    }
    const std::vector<Parameter>& parameters = parts[rank].parameters;
    auto engine = Engine::Create(session->get(), ranks->get(), parameters, options);
    if (!engine.ok()) return engine.status();
    absl::Status status = (*engine)->Initialize([&](ParameterId id, std::span<float> values) {
      std::ranges::fill(values, 0.0F);
      ForEach(parameters[static_cast<size_t>(id)],
              [&](uint32_t tensor, uint64_t element, uint64_t at) {
                values[at] = FirstValue(tensor, element);
              });
      return absl::OkStatus();
    });
    for (int step = 0; step < kSteps && status.ok(); ++step) {
      status = Step(engine->get(), parameters, step);
    }
    for (uint32_t p = 0; p < parameters.size() && status.ok(); ++p) {
      auto values = (*engine)->ReadParameter(ParameterId{p});
      status = values.status();
      if (status.ok()) kept->push_back(*std::move(values));
    }
    return status;
  }

  static absl::Status Step(Engine* engine, const std::vector<Parameter>& parameters, int step) {
    absl::Status status = engine->BeginMicroBatch();
    for (uint32_t p = 0; p < parameters.size() && status.ok(); ++p) {
      const ParameterId id{p};
      auto operation = engine->Use(Pass::kBackward, std::vector{id});
      if (!operation.ok()) return operation.status();
      auto* const gradient = reinterpret_cast<float*>(operation->Gradient(id));
      std::fill_n(gradient, ElementsOf(parameters[p]), 0.0F);
      ForEach(parameters[p], [&](uint32_t tensor, uint64_t element, uint64_t at) {
        gradient[at] = Gradient(tensor, element, step);
      });
      status = operation->GradientWritten(id);
    }
    if (!status.ok()) return status;
    // LAMB uses the norm of all gradients. Any number will do if all ranks have it.
    return engine->Step({.learning_rate = 0.02, .gradient_norm = 4}).status();
  }

  geminid::testing::DaemonEnv env_;
};

std::vector<Optimizer> Optimizers() {
  return {LambOptions{},
          LambOptions{.always_adapt = true},
          LarsOptions{.weight_decay = 0.01, .trust_coefficient = 1},
          AdafactorOptions{},
          AdafactorOptions{.beta1 = 0.9, .weight_decay = 0.1, .relative_step = false},
          CameOptions{.weight_decay = 0.1}};
}

TEST_F(EnginePiecesTest, EnginesWithPiecesOfTensors_StepAsOneWithAllOfThem) {
  const std::vector<Part> halves = {{0, HalfOf(0)}, {1, HalfOf(1)}};
  const std::vector<Part> shared = {{0, HalfOf(0)}, {0, HalfOf(0)}, {1, HalfOf(1)}, {1, HalfOf(1)}};
  for (const Optimizer& optimizer : Optimizers()) {
    SCOPED_TRACE(Name(optimizer));
    const Values one = MustTrain(optimizer, {{0, Model()}});
    const Values two = MustTrain(optimizer, halves);
    ExpectClose(two, one);
    EXPECT_EQ(MustTrain(optimizer, halves), two) << "another run has other bits";
    ExpectClose(MustTrain(optimizer, shared), one);
  }
}

TEST_F(EnginePiecesTest, ElementsThatNoRankCountsOrTwoDo_AreRefusedByTheTensorsName) {
  std::vector<Part> parts = {{0, HalfOf(0)}, {1, HalfOf(1)}};
  parts[1].parameters[2].counts = true;
  EXPECT_THAT(std::string(Train(LambOptions{}, parts).status().message()),
              HasSubstr("of the 10 elements of 'bias' all ranks together count 20"));
  parts[0].parameters[2].counts = parts[1].parameters[2].counts = false;
  EXPECT_THAT(std::string(Train(LambOptions{}, parts).status().message()),
              HasSubstr("'bias' all ranks together count 0"));
}

TEST_F(EnginePiecesTest, PiecesThatAreNotThereOrOverlap_AreRefused) {
  const auto words = [this](const std::function<void(std::vector<Parameter>*)>& change) {
    std::vector<Part> parts = {{0, HalfOf(0)}, {1, HalfOf(1)}};
    change(&parts[1].parameters);
    return std::string(Train(CameOptions{}, parts).status().message());
  };
  EXPECT_THAT(words([](auto* of) { of->front().pieces->front().tensor_first = 6; }),
              HasSubstr("a piece of parameter 'half of columns' is not within 'columns'"));
  EXPECT_THAT(words([](auto* of) { of->front().pieces->front().stride = 6; }),
              HasSubstr("a piece of parameter 'half of columns' is not within it"));
  EXPECT_THAT(words([](auto* of) { of->front().pieces->front().tensor = 6; }),
              HasSubstr("is of tensor 6; Options::model has 6"));
  EXPECT_THAT(words([](auto* of) { of->at(1).pieces->front().first = 0; }),
              HasSubstr("pieces of parameter 'rows+more rows' overlap"));
  EXPECT_THAT(words([](auto* of) {
                of->front().pieces->front() = {.rows = uint64_t{1} << 60, .columns = 1};
              }),
              HasSubstr("is not within 'columns'"));
  EXPECT_THAT(words([](auto* of) { of->front().pieces.reset(); }),
              HasSubstr("no tensor of Options::model has its name"));
  EXPECT_THAT(words([](auto* of) { of->at(2).shape = {9}; }), HasSubstr("has 9 elements"));
}

}  // namespace
}  // namespace geminid::zero
