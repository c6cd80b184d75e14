#include "geminid/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Mesh Made(std::vector<MeshAxis> axes, int world_size) {
  auto mesh = Mesh::Make(std::move(axes), world_size);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *std::move(mesh);
}

std::string Refusal(std::vector<MeshAxis> axes, int world_size) {
  const auto mesh = Mesh::Make(std::move(axes), world_size);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(mesh.status().message());
}

TEST(Mesh, LastAxis_IsOfNeighboursInRank) {
  const Mesh mesh = Made({{"pipeline", 2}, {"data", 3}, {"tensor", 4}}, 24);
  EXPECT_THAT(mesh.Group(5, {"tensor"}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.Group(5, {"data"}), ElementsAre(1, 5, 9));
  EXPECT_THAT(mesh.Group(5, {"pipeline"}), ElementsAre(5, 17));
  EXPECT_EQ(mesh.ToString(), "pipeline=2 x data=3 x tensor=4");
}

TEST(Mesh, GroupAlongTwoAxes_CountsTheOuterSlowestHoweverNamed) {
  const Mesh mesh = Made({{"pipeline", 2}, {"data", 2}, {"tensor", 2}}, 8);
  EXPECT_THAT(mesh.Group(3, {"pipeline", "tensor"}), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(mesh.Group(3, {"tensor", "pipeline"}), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(mesh.Group(3, {"tensor", "tensor"}), ElementsAre(2, 3));
}

TEST(Mesh, UnknownAxis_IsOfOneRank) {
  const Mesh mesh = Made({{"data", 2}}, 2);
  EXPECT_FALSE(mesh.Has("expert"));
  EXPECT_EQ(mesh.SizeOf("expert"), 1);
  EXPECT_EQ(mesh.Coordinate(1, "expert"), 0);
  EXPECT_THAT(mesh.Group(1, {"expert"}), ElementsAre(1));
}

// Brute force: ranks are in one group exactly if all other coordinates agree.
TEST(Mesh, Groups_ArePartitionsOfTheWorld) {
  const std::vector<MeshAxis> axes = {{"a", 2}, {"b", 3}, {"c", 1}, {"d", 5}};
  const Mesh mesh = Made(axes, 30);
  std::set<std::vector<int>> coordinates;
  for (int rank = 0; rank < 30; ++rank) {
    std::vector<int> own;
    for (const MeshAxis& axis : axes) own.push_back(mesh.Coordinate(rank, axis.name));
    coordinates.insert(own);
    std::vector<int> expected;
    for (int other = 0; other < 30; ++other) {
      if (mesh.Coordinate(other, "b") != mesh.Coordinate(rank, "b")) continue;
      if (mesh.Coordinate(other, "c") != mesh.Coordinate(rank, "c")) continue;
      expected.push_back(other);
    }
    EXPECT_EQ(mesh.Group(rank, {"a", "d"}), expected);
  }
  EXPECT_EQ(coordinates.size(), 30u);
}

TEST(Mesh, SizesThatDoNotFit_AreRefusedWithTheNearestThatDo) {
  EXPECT_THAT(Refusal({{"pipeline", 2}, {"tensor", 4}}, 12),
              HasSubstr("the mesh pipeline=2 x tensor=4 has 8 ranks and the job 12; it would fit 8 "
                        "or 16 ranks (with a further axis)"));
  EXPECT_THAT(Refusal({{"tensor", 4}}, 2), HasSubstr("it would fit 4 ranks"));
  EXPECT_THAT(Refusal({{"tensor", 0}}, 2), HasSubstr("axis tensor has size 0"));
  EXPECT_THAT(Refusal({{"tensor", 2}, {"tensor", 1}}, 2), HasSubstr("two axes tensor"));
  EXPECT_THAT(Refusal({{"", 2}}, 2), HasSubstr("no name"));
  EXPECT_THAT(Refusal({}, 1), HasSubstr("at least one axis"));
  EXPECT_THAT(Refusal({{"a", 1 << 20}, {"b", 1 << 20}}, 1), HasSubstr("more ranks than any job"));
}

TEST(Mesh, Connect_MakesTheGroupsOfAllRanksAtOnce) {
  const Mesh mesh = Made({{"data", 2}, {"tensor", 2}}, 4);
  Communicators world = LocalBackend().connect(4, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    for (const std::string_view axis : {"data", "tensor"}) {
      auto group = mesh.Connect(rank, {axis});
      ASSERT_TRUE(group.ok()) << group.status();
      std::vector<int32_t> own = {rank.Rank()}, members(2);
      ASSERT_EQ((*group)->AllGather(own, members), absl::OkStatus());
      EXPECT_EQ(members, mesh.Group(rank.Rank(), {axis}));
    }
  });
}

TEST(Mesh, ConnectInAnotherWorld_IsRefused) {
  const Mesh mesh = Made({{"data", 2}}, 2);
  const auto alone = MakeSelfCommunicator();
  EXPECT_EQ(mesh.Connect(*alone, {"data"}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::collectives
