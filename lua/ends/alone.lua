local ends = use 'ends/ends'
local without_fetch = use 'ends/without-fetch'
local touched = use 'gate/touched'
local group_hooks = use 'groups/hooks'

-- Ends jobs in whose places none are wanted. Returns the reply.
local function end_alone(key)
  local store_groups
  if redis.call('HGET', key, 'groups') then ends.quiet, store_groups = group_hooks.redis(without_fetch.quiet(ends.base)) end
  for at = ends.FIRST, #ends.argv, ends.FIELDS do ends.results[#ends.results + 1] = ends.finish(at, false) end
  if store_groups then store_groups() end
  if #ends.unseen > 0 then without_fetch.frees_place(ends.base, #ends.unseen) end
  if next(touched.bases) then touched.wake() end
  return { 1, '', ends.results }
end

return end_alone
