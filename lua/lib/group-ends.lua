--- @include "groups"
--- @include "wake"

-- Jobs that ended, or went elsewhere, make room for others of their groups.
local function groups_note_ends(base, ids)
  local g = groups_library().bare(base)
  for _, id in ipairs(ids) do g:left(id) end
  g:save()
  if g.awaited then wake.one(base) end
end

-- A job that ran is delayed: it holds a place of its group, unless the same call has promoted it already.
local function groups_note_delayed(base, id)
  if redis.call('HEXISTS', base .. 'meta:shape', 'groups') == 0 then return end
  if redis.call('ZSCORE', base .. 'delayed', id) then groups_library().bare(base):note_later(id, 'add') end
end
