#include "hf/publish.h"

#include <vector>

#include "base/file.h"

namespace rondo::hf {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kReplaced = ".tmp-replaced-";

bool is_plain_name(std::string_view name) {
  return !name.empty() && !name.starts_with('.') &&
         name.find_first_of(std::string_view("/\n\0", 3)) == name.npos;
}

Result<void> check(const std::error_code& error, std::string_view action, const fs::path& path) {
  if (!error) return {};
  const Code code = error == std::errc::no_space_on_device ? Code::kResourceExhausted : Code::kIo;
  return fail(code, "cannot {} {}: {}", action, path.string(), error.message());
}

Result<void> make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return check(error, "create the folder", path);
}

Result<void> rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return check(error, fmt::format("rename {} to", from.string()), to);
}

Result<void> remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return check(error, "remove", path);
}

Result<std::vector<fs::directory_entry>> list(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(*it);
  RONDO_TRY(check(error, "list", folder));
  return entries;
}

// Makes every file and folder below `folder`, and itself, durable. Links are not followed.
Result<void> fsync_tree(const fs::path& folder) {
  std::vector<fs::path> folders = {folder};
  while (!folders.empty()) {
    const fs::path current = std::move(folders.back());
    folders.pop_back();
    RONDO_ASSIGN(const auto entries, list(current));
    for (const fs::directory_entry& entry : entries) {
      std::error_code error;
      const fs::file_type type = entry.symlink_status(error).type();
      RONDO_TRY(check(error, "inspect", entry.path()));
      if (type == fs::file_type::directory) folders.push_back(entry.path());
      if (type == fs::file_type::regular) RONDO_TRY(fsync_file(entry.path()));
    }
    RONDO_TRY(fsync_folder(current));
  }
  return {};
}

// Moves what stands at `final_path` out of the way, unless the pointer names it.
Result<void> make_way(const fs::path& parent, std::string_view name, std::string_view pointer) {
  const fs::path final_path = parent / name;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(final_path, error))) return {};
  auto text = read_file(parent / pointer);
  if (text && *text == std::string(name) + "\n")
    return fail(Code::kInvalidArgument,
                "{} is published already and {} names it; continue after it or choose another folder",
                final_path.string(), (parent / pointer).string());
  if (!text && text.error().code() != Code::kNotFound) return tl::unexpected<Status>(std::move(text).error());
  return rename_path(final_path, parent / (std::string(kReplaced) + std::string(name)));
}

Result<void> fill_temporary(const fs::path& temporary, const FillFolder& fill) {
  RONDO_TRY(make_folder(temporary));
  RONDO_TRY(fill(temporary));
  return fsync_tree(temporary);
}

void tell(const PublishProgress& progress, std::string_view stage) {
  if (progress) progress(stage);
}

}  // namespace

Result<fs::path> publish_folder(const fs::path& parent, std::string_view name, std::string_view pointer,
                                const FillFolder& fill, const PublishProgress& progress) {
  for (const std::string_view plain : {name, pointer})
    if (!is_plain_name(plain))
      return fail(Code::kInvalidArgument, "'{}' cannot be published: a name has no '/' and no leading '.'",
                  plain);
  if (name == pointer) return fail(Code::kInvalidArgument, "'{}' is the name of the pointer file", name);
  tell(progress, "begin");
  RONDO_TRY(make_folder(parent));
  RONDO_TRY(remove_temporaries(parent));
  const fs::path temporary = parent / (std::string(kTemporary) + std::string(name));
  const fs::path final_path = parent / name;
  auto prepared = fill_temporary(temporary, fill).and_then([&] {
    tell(progress, "before_rename");
    return make_way(parent, name, pointer);
  });
  if (prepared) prepared = rename_path(temporary, final_path);
  if (!prepared) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    return tl::unexpected<Status>(std::move(prepared).error());
  }
  RONDO_TRY(fsync_folder(parent));
  tell(progress, "after_rename");
  RONDO_TRY(replace_file(parent / pointer, std::string(name) + "\n"));
  RONDO_TRY(remove_temporaries(parent));
  tell(progress, "done");
  return final_path;
}

Result<std::optional<fs::path>> read_pointer(const fs::path& parent, std::string_view pointer) {
  const fs::path path = parent / pointer;
  auto text = read_file(path);
  if (!text && text.error().code() == Code::kNotFound) return std::optional<fs::path>();
  RONDO_ASSIGN(std::string name, std::move(text));
  if (name.ends_with('\n')) name.pop_back();
  std::error_code error;
  if (!is_plain_name(name) || !fs::is_directory(parent / name, error))
    return fail(Code::kDataLoss,
                "{} names no folder beside it; write the name of a whole one into it, or remove it",
                path.string());
  return std::optional<fs::path>(parent / name);
}

Result<void> remove_temporaries(const fs::path& parent) {
  RONDO_ASSIGN(const auto entries, list(parent));
  for (const fs::directory_entry& entry : entries)
    if (entry.path().filename().string().starts_with(kTemporary)) RONDO_TRY(remove_tree(entry.path()));
  return {};
}

}  // namespace rondo::hf
