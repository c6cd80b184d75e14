#include "client/zero/basics/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

std::vector<TensorShape> Trainable(std::initializer_list<uint64_t> sizes) {
  std::vector<TensorShape> tensors;
  for (uint64_t size : sizes) tensors.push_back({size, true});
  return tensors;
}

// Checks the properties that every layout must have.
void ExpectSound(const Layout& layout, const std::vector<TensorShape>& tensors,
                 const LayoutOptions& options) {
  uint64_t used = 0;
  uint32_t granules = 0;
  for (const ChunkShape& chunk : layout.chunks) {
    EXPECT_EQ(chunk.first_granule, granules);
    EXPECT_EQ(chunk.elements, uint64_t{chunk.granules} * chunk.granule_elements *
                                  static_cast<uint64_t>(options.world_size));
    EXPECT_EQ(chunk.granule_bytes() % 64, 0u);
    granules += chunk.granules;
    uint64_t end = 0;
    for (uint32_t tensor : chunk.tensors) {
      EXPECT_GE(layout.tensors[tensor].offset, end) << "tensors overlap";
      EXPECT_EQ(layout.tensors[tensor].offset * chunk.element_bytes() % 64, 0u);
      EXPECT_EQ(tensors[tensor].trainable, chunk.trainable);
      EXPECT_EQ(tensors[tensor].type, chunk.type);
      end = layout.tensors[tensor].offset + tensors[tensor].elements;
      used += tensors[tensor].elements;
    }
    EXPECT_LE(end, chunk.elements);
  }
  EXPECT_EQ(layout.granules, granules);
  EXPECT_EQ(layout.used_elements, used);
}

TEST(Layout, RandomTensors_AreSoundForEveryWorldSize) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    LayoutOptions options;
    options.world_size = 1 + static_cast<int>(random() % 5);
    const uint64_t types = 1 + random() % 5;  // the first ones of DataType
    std::vector<TensorShape> tensors(1 + random() % 40);
    for (TensorShape& tensor : tensors) {
      tensor = {1 + random() % (random() % 8 == 0 ? 3000000 : 90000), random() % 5 != 0};
      tensor.type = static_cast<DataType>(random() % types);
      tensor.trainable = tensor.trainable && IsTrained(tensor.type);
    }
    absl::StatusOr<Layout> layout = MakeLayout(tensors, options);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ExpectSound(*layout, tensors, options);
  }
}

TEST(Layout, TensorsThatFillAChunkExactly_WasteNothing) {
  // Four tensors of 2^19 elements. Chunks of one tensor or of two hold them without a gap.
  const std::vector<TensorShape> tensors = Trainable({1 << 19, 1 << 19, 1 << 19, 1 << 19});
  absl::StatusOr<Layout> layout = MakeLayout(tensors, {.world_size = 2});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->padding_elements, 0u);
  EXPECT_EQ(layout->chunk_elements, uint64_t{1} << 19);  // the smallest of equal choices
  layout = MakeLayout(tensors, {.world_size = 2, .chunk_elements = 1 << 20});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->chunks.size(), 2u);
}

TEST(Layout, TensorLargerThanAChunk_HasAChunkOfItsOwn) {
  const std::vector<TensorShape> tensors = Trainable({1000, 300000, 1000});
  const LayoutOptions options{.world_size = 2, .chunk_elements = 65536};
  absl::StatusOr<Layout> layout = MakeLayout(tensors, options);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ExpectSound(*layout, tensors, options);
  EXPECT_EQ(layout->tensors[0].chunk, layout->tensors[2].chunk);
  EXPECT_NE(layout->tensors[0].chunk, layout->tensors[1].chunk);
  const ChunkShape& own = layout->chunks[layout->tensors[1].chunk];
  EXPECT_EQ(own.tensors, std::vector<uint32_t>{1});
  EXPECT_LT(own.elements - 300000, own.granule_elements * 2);
}

TEST(Layout, FrozenTensors_DoNotShareChunksWithTrainedOnes) {
  std::vector<TensorShape> tensors = Trainable({5000, 5000, 5000});
  tensors[1].trainable = false;
  absl::StatusOr<Layout> layout = MakeLayout(tensors, {});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->tensors[0].chunk, layout->tensors[2].chunk);
  EXPECT_NE(layout->tensors[0].chunk, layout->tensors[1].chunk);
}

// Muon's matrices. No granule may end inside one, for any number of ranks.
TEST(Layout, WholeTensors_LieWithinOneGranuleAndShareChunksWithEachOtherAlone) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    LayoutOptions options;
    options.world_size = 1 + static_cast<int>(random() % 5);
    if (random() % 3 == 0) options.chunk_elements = 1 + random() % 300000;
    std::vector<TensorShape> tensors(2 + random() % 30);
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = {1 + random() % 90000, true};
      tensors[i].whole = i % 2 == 0;
      if (random() % 2 == 0) tensors[i].unit = static_cast<uint32_t>(random() % 3);
      if (random() % 4 == 0) tensors[i].type = DataType::kFloat32;
    }
    absl::StatusOr<Layout> layout = MakeLayout(tensors, options);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ExpectSound(*layout, tensors, options);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorPlace& place = layout->tensors[i];
      const ChunkShape& chunk = layout->chunks[place.chunk];
      ASSERT_EQ(chunk.whole, tensors[i].whole);
      if (!chunk.whole) continue;
      EXPECT_EQ(place.offset / chunk.granule_elements,
                (place.offset + tensors[i].elements - 1) / chunk.granule_elements);
    }
  }
}

// GPT-2's layer of width 256 with four matrices, on two ranks: two matrices fill one granule.
TEST(Layout, WholeTensorsThatFillGranules_WasteNothing) {
  std::vector<TensorShape> tensors =
      Trainable({3 << 16, 1 << 16, 4 << 16, 4 << 16, 3 << 16, 1 << 16});
  for (TensorShape& tensor : tensors) tensor.whole = true;
  absl::StatusOr<Layout> layout = MakeLayout(tensors, {.world_size = 2});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->padding_elements, 0u);
}

std::vector<TensorShape> Matrices() {
  std::vector<TensorShape> tensors;
  for (int layer = 0; layer < 24; ++layer) {
    tensors.push_back({1 << 20, true});
    tensors.push_back({5 << 18, true});
  }
  return tensors;
}

// If chunks for norms were as large as those for matrices, they would be mostly padding.
TEST(Layout, FewTensorsOfAnotherType_AreInChunksForTheirOwnSizes) {
  const std::vector<TensorShape> matrices = Matrices();
  std::vector<TensorShape> tensors = matrices;
  for (int layer = 0; layer < 24; ++layer) tensors.push_back({1024, true, DataType::kFloat32});
  absl::StatusOr<Layout> alone = MakeLayout(matrices, {.world_size = 2});
  absl::StatusOr<Layout> mixed = MakeLayout(tensors, {.world_size = 2});
  ASSERT_TRUE(alone.ok() && mixed.ok());
  ExpectSound(*mixed, tensors, {.world_size = 2});
  EXPECT_EQ(mixed->chunk_elements, alone->chunk_elements);
  for (size_t t = 0; t < matrices.size(); ++t) {
    EXPECT_EQ(mixed->tensors[t].chunk, alone->tensors[t].chunk);
    EXPECT_EQ(mixed->tensors[t].offset, alone->tensors[t].offset);
  }
  const uint64_t more = mixed->padding_elements - alone->padding_elements;
  EXPECT_LT(more, 24u * 1024u / 2);
}

TEST(Layout, ChunkSizeThatIsGiven_MakesNoChunkLargerThanAllOfItsType) {
  std::vector<TensorShape> tensors = Matrices();
  tensors.push_back({1024, true, DataType::kFloat32});
  absl::StatusOr<Layout> layout = MakeLayout(tensors, {.chunk_elements = 1 << 22});
  ASSERT_TRUE(layout.ok());
  EXPECT_GE(layout->chunk_elements, uint64_t{1} << 22);
  EXPECT_LE(layout->chunks.back().elements, 2048u);
}

// --- units ---------------------------------------------------------------------------------------

TEST(Layout, RandomUnits_ShareChunksOnlyIfTheyAreSmall) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    LayoutOptions options;
    options.world_size = 1 + static_cast<int>(random() % 4);
    options.chunk_elements = random() % 2 == 0 ? 0 : 32768;
    std::vector<TensorShape> tensors(1 + random() % 60);
    for (TensorShape& tensor : tensors) {
      tensor = {1 + random() % (random() % 8 == 0 ? 300000 : 20000), random() % 5 != 0};
      tensor.type = random() % 4 == 0 ? DataType::kFloat32 : DataType::kBFloat16;
      if (random() % 6 != 0) tensor.unit = random() % 7;
    }
    absl::StatusOr<Layout> layout = MakeLayout(tensors, options);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ExpectSound(*layout, tensors, options);
    for (size_t a = 0; a < tensors.size(); ++a) {
      const ChunkShape& chunk = layout->chunks[layout->tensors[a].chunk];
      uint64_t of_the_unit = 0;
      for (const TensorShape& other : tensors) {
        const bool together = other.unit == tensors[a].unit && other.trainable == chunk.trainable &&
                              other.type == chunk.type;
        if (together) of_the_unit += other.elements;
      }
      const uint64_t quantum = chunk.elements / chunk.granules;
      if (!tensors[a].unit.has_value() || of_the_unit < quantum) continue;
      for (uint32_t b : chunk.tensors) EXPECT_EQ(tensors[b].unit, tensors[a].unit);
    }
  }
}

// Blocks of GPT-2 of width 64, in fp32. `units`: each block is one unit.
std::vector<TensorShape> Blocks(bool units) {
  std::vector<TensorShape> tensors;
  for (uint32_t block = 0; block < 6; ++block) {
    for (uint64_t size :
         {64, 64, 64 * 192, 192, 64 * 64, 64, 64, 64, 64 * 256, 256, 256 * 64, 64}) {
      tensors.push_back({size, true, DataType::kFloat32});
      if (units) tensors.back().unit = block;
    }
  }
  return tensors;
}

// The most bytes that one block gathers.
uint64_t BytesOfABlock(const std::vector<TensorShape>& tensors, const Layout& layout) {
  const size_t per_block = tensors.size() / 6;
  uint64_t most = 0;
  for (size_t block = 0; block < 6; ++block) {
    std::set<uint32_t> chunks;
    for (size_t t = 0; t < per_block; ++t) {
      chunks.insert(layout.tensors[block * per_block + t].chunk);
    }
    uint64_t bytes = 0;
    for (uint32_t chunk : chunks) bytes += layout.chunks[chunk].bytes();
    most = std::max(most, bytes);
  }
  return most;
}

// A block is 196 KiB.
TEST(Layout, BlocksAsUnits_AreSpreadOverNoMoreThanTheyFill) {
  const LayoutOptions options{.chunk_elements = 16384};
  absl::StatusOr<Layout> without = MakeLayout(Blocks(false), options);
  absl::StatusOr<Layout> with = MakeLayout(Blocks(true), options);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_GE(BytesOfABlock(Blocks(false), *without), 384u << 10);
  EXPECT_EQ(BytesOfABlock(Blocks(true), *with), 256u << 10);
  EXPECT_LE(with->padding_elements, without->padding_elements);
  absl::StatusOr<Layout> searched = MakeLayout(Blocks(true), {});
  ASSERT_TRUE(searched.ok());
  EXPECT_LE(BytesOfABlock(Blocks(true), *searched), 256u << 10);
}

TEST(Layout, UnitsTooSmallForAGranule_ShareChunksWithTheRest) {
  std::vector<TensorShape> tensors = Matrices();
  for (size_t t = 0; t < tensors.size(); ++t) tensors[t].unit = static_cast<uint32_t>(t / 2);
  for (uint32_t block = 0; block < 24; ++block) tensors.push_back({1024, true, DataType::kBFloat16, 100 + block});
  absl::StatusOr<Layout> layout = MakeLayout(tensors, {});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->tensors.back().chunk, layout->tensors[tensors.size() - 24].chunk);
  EXPECT_LT(static_cast<double>(layout->padding_elements),
            0.15 * static_cast<double>(layout->used_elements));
}

// The golden figure of Gemini's search. Without the embedding, an outlier, GPT-2 with 2 layers of
// width 128 packs into chunks of 527872 elements without waste.
TEST(Layout, Gpt2TwoLayers_FindsAChunkWithoutMoreWasteThanTheGoldenSize) {
  std::vector<TensorShape> tensors = Trainable({50258 * 128, 1024 * 128});
  for (int layer = 0; layer < 2; ++layer) {
    for (uint64_t size :
         {128, 128, 384 * 128, 384, 128 * 128, 128, 128, 128, 512 * 128, 512, 128 * 512, 128}) {
      tensors.push_back({size, true});
    }
  }
  tensors.push_back({128, true});
  tensors.push_back({128, true});
  absl::StatusOr<Layout> golden = MakeLayout(tensors, {.chunk_elements = 527872});
  absl::StatusOr<Layout> searched = MakeLayout(tensors, {});
  ASSERT_TRUE(golden.ok() && searched.ok());
  EXPECT_LE(searched->padding_elements, golden->padding_elements);
}

TEST(Layout, ManySmallGranules_KeepTheCostOfASpareSmall) {
  std::vector<TensorShape> tensors;
  for (int layer = 0; layer < 12; ++layer) {
    for (uint64_t size : {384 * 1152, 384 * 384, 384 * 1536, 1536 * 384}) {
      tensors.push_back({size, true});
    }
  }
  absl::StatusOr<Layout> layout = MakeLayout(tensors, {.world_size = 2});
  ASSERT_TRUE(layout.ok());
  // One spare granule has 12 bytes per element; all granules have 14 bytes of state per element.
  EXPECT_LT(12.0 / layout->granules + 14.0 * static_cast<double>(layout->padding_elements) /
                                          static_cast<double>(layout->used_elements),
            0.5);
}

TEST(Layout, NoTensorsOrEmptyTensor_IsInvalid) {
  EXPECT_EQ(MakeLayout({}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<TensorShape> tensors = Trainable({5, 0});
  absl::Status status = MakeLayout(tensors, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 1"));
}

TEST(NameChunks, NamesTheTensorsInThem) {
  Layout layout = *MakeLayout(Trainable({100, 100, 100}), {});
  ASSERT_EQ(layout.chunks.size(), 1u);
  EXPECT_EQ(NameOf(layout, 0), "chunk 0");
  std::vector<std::string> names(3);
  names[0].append("h.0.ln_1.weight");
  names[2].append("h.1.mlp.bias");
  NameChunks(names, &layout);
  EXPECT_EQ(NameOf(layout, 0), "h.0.ln_1.weight to h.1.mlp.bias");
  layout.chunks[0].tensors = {1};
  names[1].append(60, 'x').append(".layers.7.w\n");
  NameChunks(names, &layout);
  std::string expected;
  expected.append("..").append(32, 'x').append(".layers.7.w?");
  EXPECT_EQ(NameOf(layout, 0), expected);
}

}  // namespace
}  // namespace geminid::zero
