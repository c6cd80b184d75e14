#include "training/meshes/mesh_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "training/meshes/meshes.h"

namespace geminid::parallel {
namespace {

using collectives::TensorMode;
using testing::HasSubstr;

TEST(ParseMesh, OfAxesInAnyOrder_HasTheirSizes) {
  const auto all =
      ParseMesh("data=3,zero=3,sequence=ulysses:2,tensor=2.5d:size=8:depth=2,pipeline=4");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->mesh, (MeshSpec{.pipeline = 4,
                                 .data = 3,
                                 .sequence = 2,
                                 .tensor_mode = TensorMode::k25D,
                                 .tensor = 8,
                                 .depth = 2}));
  EXPECT_TRUE(all->data_is_given);
  EXPECT_EQ(all->mesh.ranks(), 4 * 3 * 2 * 8);
  const auto one = ParseMesh("pipeline=1f1b:2,tensor=1d-sequence:4");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->mesh.pipeline, 2);
  EXPECT_EQ(one->mesh.tensor_mode, TensorMode::k1DSequence);
  EXPECT_EQ(one->mesh.tensor, 4);
  EXPECT_FALSE(one->data_is_given);
  const auto megatron = ParseMesh("sequence=megatron:4,pipeline=2");
  ASSERT_TRUE(megatron.ok()) << megatron.status();
  EXPECT_EQ(megatron->mesh, one->mesh);
  const auto ring = ParseMesh("sequence=ring:2");
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->mesh.sequence_mode, SequenceMode::kRing);
  EXPECT_EQ(ParseMesh("sequence=ring:1")->mesh, MeshSpec());
  const auto hosts = ParseMesh("zero=3:host,data=8");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->mesh, (MeshSpec{.data = 8, .within_host = true}));
  EXPECT_EQ(ToString(hosts->mesh), "data=8,zero=3:host");
  EXPECT_EQ(ParseMesh("data=2,zero=1")->mesh, (MeshSpec{.data = 2, .zero = 1}));
  const auto halves = ParseMesh("pipeline=zbv:4,data=2");
  ASSERT_TRUE(halves.ok()) << halves.status();
  EXPECT_EQ(halves->mesh.pipeline, 4);
  EXPECT_TRUE(halves->mesh.in_halves());
}

TEST(ParseMesh, OfWhatToStringGives_IsTheSame) {
  for (const int ranks : {1, 2, 12, 64}) {
    for (const MeshSpec& mesh : MeshesOf(ranks)) {
      const auto parsed = ParseMesh(ToString(mesh));
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(parsed->mesh, mesh) << ToString(mesh);
    }
  }
}

TEST(ParseMesh, OfAMistake_SaysWhichAndWhatWouldBeRight) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "'' is not AXIS=SIZE"},
      {"pipeline", "'pipeline' is not AXIS=SIZE"},
      {"pipe=2",
       "there is no axis 'pipe'; the axes are pipeline, tensor, sequence, expert, data and zero"},
      {"pipeline=two", "pipeline two: it must be"},
      {"pipeline=0", "pipeline 0: it must be"},
      {"pipeline=interleaved:2:chunks=2", "pipeline=interleaved cannot be planned"},
      {"data=2,data=2", "data appears twice"},
      {"sequence=2", "it must be ulysses:N, ring:N, or megatron:N"},
      {"sequence=megatron:2,tensor=1d:2", "tensor is given, too; leave one of the two out"},
      {"tensor=2d:4,sequence=megatron:2", "tensor is given, too; leave one of the two out"},
      {"sequence=megatron:x", "sequence x: it must be"},
      {"tensor=4d:8", "tensor has no mode '4d'; the modes are 1d, 1d-sequence, 2d, 2.5d, 3d"},
      {"tensor=2d", "tensor needs a size"},
      {"tensor=2d:size=4:size=4", "tensor's size appears twice"},
      {"tensor=2d:side=2", "tensor has no 'side'"},
      {"tensor=2d:size=6", "6 ranks do not make a 2d grid; the nearest that do are 4 or 9"},
      {"tensor=3d:size=8:depth=2", "3d tensor parallelism has no depth"},
      {"zero=0", "zero is '0'; it must be 3"},
      {"expert=2", "expert cannot be planned; pipeline, tensor, sequence and data can"},
      {"pipeline=1000,data=1000", "has more than 65536 ranks"},
      {"pipeline=65536,data=65536,sequence=ulysses:65536,tensor=1d:65536",
       "has more than 65536 ranks"}};
  for (const auto& [text, words] : mistakes) {
    const auto parsed = ParseMesh(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(words)) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("--parallel")) << text;
  }
}

}  // namespace
}  // namespace geminid::parallel
