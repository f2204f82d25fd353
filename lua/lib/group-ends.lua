--- @include "groups"
--- @include "group-wake"

-- Jobs that ended, or went elsewhere, make room for others of their groups.
local function groups_note_ends(base, ids)
  local g = groups_library().bare(base)
  for _, id in ipairs(ids) do g:left(id) end
  g:save()
  if g.awaited then group_wake(base) end
end
