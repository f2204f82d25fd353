local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local without_fetch = use 'ends/without-fetch'
local wake = use 'gate/wake'
local group_hooks = use 'groups/hooks'

-- Ends jobs in whose places none are wanted. Returns the reply.
local function end_alone(key)
  local store_groups
  if redis.call('HGET', key, 'groups') then exchanged.quiet, store_groups = group_hooks.redis(ends.quiet()) end
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do exchanged.results[#exchanged.results + 1] = ends.finish(at, false) end
  if store_groups then store_groups() end
  if #exchanged.unseen > 0 then without_fetch.frees_place(exchanged.base, #exchanged.unseen) end
  wake.touched()
  return { 1, '', exchanged.results }
end

return end_alone
