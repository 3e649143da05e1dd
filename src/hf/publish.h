// Publishing a folder so that a reader sees it whole or not at all, whenever the writer is killed.
//
//   parent/
//     <name>/         published folders, each whole
//     <pointer>       a file: the name of the newest published folder and a line feed
//     .tmp-<name>/    a folder that is being written, or that a killed writer left
//
// Order: fill .tmp-<name>, fsync all of it, rename it to <name>, fsync parent, replace <pointer>.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::hf {

/// Writes the folder's contents into `folder`, which exists and is empty. Need not fsync.
using FillFolder = std::function<Result<void>(const std::filesystem::path& folder)>;

/// Told where publishing stands, for fault tests and logs: "begin" (nothing done), "before_rename" (written
/// and durable), "after_rename" (in place, the pointer still the old one), "done".
using PublishProgress = std::function<void(std::string_view stage)>;

/// Publishes `parent`/`name` and points `parent`/`pointer` at it; returns the folder's path.
///
/// Does not keep or prune older folders. One writer per parent at a time; any number of readers. A folder of
/// this name that the pointer does not name is what a run left that was killed between the rename and the
/// pointer, or was resumed from before it: it is replaced. One that the pointer names is kInvalidArgument. An
/// error before the rename leaves nothing; one after it leaves the folder in place and the pointer as it was.
Result<std::filesystem::path> publish_folder(const std::filesystem::path& parent, std::string_view name,
                                             std::string_view pointer, const FillFolder& fill,
                                             const PublishProgress& progress = {});

/// The folder that the pointer names; nothing if there is no pointer file. kDataLoss if it names no folder.
Result<std::optional<std::filesystem::path>> read_pointer(const std::filesystem::path& parent,
                                                          std::string_view pointer);

/// Removes the temporary folders that killed writers left. Only the writer may call it.
Result<void> remove_temporaries(const std::filesystem::path& parent);

}  // namespace rondo::hf
