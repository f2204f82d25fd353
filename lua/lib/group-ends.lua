--- @include "groups"
--- @include "group-wake"

-- Jobs that ended, or went elsewhere, make room for others of their groups.
local function groups_note_ends(base, ids)
  local g, ready = groups_library().bare(base), false
  for _, id in ipairs(ids) do ready = g:left(id) or ready end
  if not ready then return end
  g:save()
  group_wake(base)
end
