#include "training/engines/tensor_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/collectives/world.h"
#include "tests/training/models/tensor_models.h"

namespace geminid::trainer {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;
using zero::ParameterId;
using zero::ShardRange;
using zero::StateKind;

// One rank's blocks in memory. Its shard of each block is two runs of elements.
class BlocksInMemory final : public zero::ModelState {
 public:
  explicit BlocksInMemory(const TensorParameters& parameters) : parameters_(parameters) {
    for (const TensorBlock& block : parameters.blocks) values_.emplace_back(block.spec.elements());
  }

  absl::Status Initialize(const Fill& fill) override {
    absl::Status filled;
    for (uint32_t i = 0; i < values_.size(); ++i) filled.Update(fill(ParameterId{i}, values_[i]));
    return filled;
  }
  void Invalidate(std::string) override {}
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) override { return At(id); }
  std::vector<ShardRange> ShardOf(ParameterId id) const override {
    const size_t elements = values_[static_cast<size_t>(id)].size();
    return {{0, elements / 5}, {elements / 4, elements / 3}};
  }
  bool HasState(ParameterId, StateKind kind) const override { return kind == StateKind::kMaster; }
  zero::DataType state_type() const override { return zero::DataType::kFloat32; }
  const char* optimizer_name() const override { return "adamw"; }
  absl::Status ReadShard(ParameterId id, StateKind, uint64_t offset,
                         std::span<float> values) override {
    std::copy_n(At(id).begin() + static_cast<ptrdiff_t>(offset), values.size(), values.begin());
    return absl::OkStatus();
  }
  absl::Status WriteShard(ParameterId id, StateKind, uint64_t offset,
                          std::span<const float> values) override {
    std::ranges::copy(values, At(id).begin() + static_cast<ptrdiff_t>(offset));
    return absl::OkStatus();
  }
  absl::Status Restore(const zero::Progress&) override { return absl::OkStatus(); }
  absl::StatusOr<zero::Progress> GetProgress() override { return zero::Progress{.step = 7}; }
  // Writes everything at once, in pieces of 10 elements.
  absl::Status StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) override {
    for (uint32_t i = 0; i < values_.size(); ++i) {
      for (size_t at = 0; at < values_[i].size(); at += 10) {
        const auto piece = std::span<const float>(values_[i])
                               .subspan(at, std::min<size_t>(10, values_[i].size() - at));
        EXPECT_EQ(sink->Write(ParameterId{i}, StateKind::kMaster, at, piece), absl::OkStatus());
      }
    }
    return absl::OkStatus();
  }
  absl::Status WaitSnapshot() override { return absl::OkStatus(); }
  std::optional<zero::Resumed> resumed() const override { return std::nullopt; }

 private:
  std::vector<float>& At(ParameterId id) { return values_[static_cast<size_t>(id)]; }

  const TensorParameters& parameters_;
  std::vector<std::vector<float>> values_;
};

// Collects what all ranks write, by element of the model's parameters.
class Written final : public zero::SnapshotSink {
 public:
  absl::Status Write(ParameterId id, StateKind /*kind*/, uint64_t offset,
                     std::span<const float> values) override {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < values.size(); ++i) {
      written_[{static_cast<uint32_t>(id), offset + i}].push_back(values[i]);
    }
    return absl::OkStatus();
  }
  const std::vector<float>& At(uint32_t id, uint64_t element) { return written_[{id, element}]; }
  size_t size() const { return written_.size(); }

 private:
  std::mutex mutex_;
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> written_;
};

// A different value for each element of the model.
float ValueOf(uint32_t id, uint64_t element) {
  return static_cast<float>(id) * 1e5F + static_cast<float>(element);
}

absl::Status FillAll(ParameterId id, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ValueOf(static_cast<uint32_t>(id), i);
  }
  return absl::OkStatus();
}

// Calls `body` with the state of every rank of a grid.
void OnGrid(const TensorGrid& grid, const ModelConfig& config,
            const std::function<void(TensorState&)>& body) {
  std::vector<TensorParameters> blocks;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    blocks.push_back(*MakeTensorParameters(config, WholeModel(config), grid, rank));
  }
  auto world = collectives::LocalBackend().connect(grid.ranks(), absl::Seconds(60));
  collectives::ForEachRank(world, [&](collectives::Communicator& ranks) {
    BlocksInMemory inner(blocks[static_cast<size_t>(ranks.Rank())]);
    TensorState state(config, blocks, &inner, &ranks);
    ASSERT_EQ(state.Initialize(FillAll), absl::OkStatus());
    body(state);
  });
}

TEST(TensorState, ReadAndHandedOut_IsTheWholeModelOnce) {
  for (const ModelConfig& config : {CutGpt2(), CutLlama()}) {
    const std::vector<ParameterSpec> specs = MakeParameters(config).specs;
    for (const TensorGrid& grid : Grids()) {
      auto written = std::make_shared<Written>();
      OnGrid(grid, config, [&](TensorState& state) {
        for (uint32_t id = 0; id < specs.size(); ++id) {
          std::vector<float> want(specs[id].elements());
          EXPECT_EQ(FillAll(ParameterId{id}, want), absl::OkStatus());
          EXPECT_EQ(*state.ReadParameter(ParameterId{id}), want) << specs[id].name;
        }
        EXPECT_EQ(state.StartSnapshot(written), absl::OkStatus());
        EXPECT_EQ(state.WaitSnapshot(), absl::OkStatus());
        EXPECT_EQ(state.GetProgress()->step, 7);
        EXPECT_TRUE(state.HasState(ParameterId{0}, StateKind::kMaster));
        EXPECT_FALSE(state.HasState(ParameterId{0}, StateKind::kExpAvg));
      });
      size_t elements = 0;
      for (uint32_t id = 0; id < specs.size(); ++id) {
        elements += specs[id].elements();
        for (uint64_t i = 0; i < specs[id].elements(); ++i) {
          ASSERT_EQ(written->At(id, i), std::vector<float>{ValueOf(id, i)}) << specs[id].name;
        }
      }
      EXPECT_EQ(written->size(), elements);
    }
  }
}

TEST(TensorState, ReadAndWrittenByShards_IsWhatShardOfSays) {
  for (const ModelConfig& config : {CutGpt2(), CutLlama()}) {
    const std::vector<ParameterSpec> specs = MakeParameters(config).specs;
    OnGrid(*TensorGrid::Make(TensorMode::k3D, 8), config, [&](TensorState& state) {
      for (uint32_t id = 0; id < specs.size(); ++id) {
        uint64_t end = 0;
        for (const ShardRange& range : state.ShardOf(ParameterId{id})) {
          EXPECT_TRUE(end == 0 || range.offset > end);  // in order, with gaps in between
          end = range.offset + range.elements;
          std::vector<float> values(range.elements), want(range.elements);
          ASSERT_EQ(state.ReadShard(ParameterId{id}, StateKind::kMaster, range.offset, values),
                    absl::OkStatus());
          for (size_t i = 0; i < want.size(); ++i) want[i] = ValueOf(id, range.offset + i);
          EXPECT_EQ(values, want);
          for (float& value : want) value = -value;
          ASSERT_EQ(state.WriteShard(ParameterId{id}, StateKind::kMaster, range.offset, want),
                    absl::OkStatus());
          ASSERT_EQ(state.ReadShard(ParameterId{id}, StateKind::kMaster, range.offset, values),
                    absl::OkStatus());
          EXPECT_EQ(values, want);
        }
        EXPECT_LE(end, specs[id].elements());
      }
    });
  }
}

TEST(TensorState, OfElementsThatAreNotHere_RefusesThemAll) {
  OnGrid(*TensorGrid::Make(TensorMode::k2D, 4), CutLlama(), [](TensorState& state) {
    const ParameterId id{2};  // a matrix
    std::vector<ShardRange> shard = state.ShardOf(id);
    ASSERT_FALSE(shard.empty());
    std::vector<float> more(shard[0].elements + 1, -1.0F);
    const absl::Status status = state.WriteShard(id, StateKind::kMaster, shard[0].offset, more);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ShardOf returns the shard"));
    ASSERT_TRUE(
        state.ReadShard(id, StateKind::kMaster, shard[0].offset, std::span(more).first(1)).ok());
    EXPECT_EQ(more[0], ValueOf(2, shard[0].offset));
    EXPECT_TRUE(
        absl::IsInvalidArgument(state.ReadShard(id, StateKind::kMaster, shard[0].offset, more)));
  });
}

}  // namespace
}  // namespace geminid::trainer
