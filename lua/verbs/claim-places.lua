--[[
  Claims places for jobs that arrive in several parts (a large bulk), or releases the rest of a claim. Whether they can
  start in time is checked here, for all of them. A full queue drops other jobs for them here, before they arrive,
  unless there are so many that this would block Redis.
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  id of the claim: claiming again with the same id changes nothing
    [3]  'claim' or 'release'
    [4]  lease, ms
    [5]  the groups of the jobs, JSON, '' if they have none
    then five for each job: its id, or '' if no job has it yet, its deduplication id or '', its cost, its terms
    (admission/new-job), and the number of such jobs, without existing ones. With deadlines, equal jobs are adjacent:
    the order of different jobs decides when they start
  Returns the reply of admission/admission, then 3: 1 if there is a claim now, 2 if places cannot be claimed, because
  groups have bounds of their own or limits bound their keys, or if a group may refuse a job for its cost.
]]
local admission = use 'admission/admission'
local claims = use 'admission/claims'
local new_job = use 'admission/new-job'
local occupancy = use 'admission/occupancy'
local overflow = use 'admission/overflow'
local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local group_share = use 'groups/share'
local shapes = use 'shape/shapes'

-- The maximum per script in src/admission/bulk-parts.ts.
local MOST_DROPPED = 200
local key = KEYS[1]
local base, now, shape = shapes.here(key)
if ARGV[3] == 'release' then
  if shape then claims.drop(key, base, ARGV[2], now) end
  return { 1, {}, 0 }
end
if shapes.is_lost(shape, ARGV[1]) then return { -1, {} } end
if shape and claims.left(base, ARGV[2], now) then return { 1, {}, 1 } end
local FIELDS, FIRST = 5, 6
-- By their texts: many jobs have the same.
local terms_of = {}
for at = FIRST, #ARGV, FIELDS do
  local text = ARGV[at + 3]
  if not terms_of[text] then
    terms_of[text] = new_job.terms(text)
    local missed = admission.deadline_error(now, terms_of[text])
    if missed then return missed end
  end
end
-- As in a bulk of one script (groups/admission).
if ARGV[5] ~= '' and not (shape and shape.groups) then return { -7, {} } end
if not shape then return { 1, {}, 0 } end
-- The keys of the jobs are unknown here.
if shape.bounds_keys then return { 1, {}, 2 } end
local new, seen, highest = { count = 0 }, {}, 0
for at = FIRST, #ARGV, FIELDS do
  local cost = tonumber(ARGV[at + 2])
  highest = math.max(highest, cost)
  if admission.is_new(base, ARGV[at], ARGV[at + 1], seen) then
    local terms, n = terms_of[ARGV[at + 3]], tonumber(ARGV[at + 4])
    if n > 0 then new[#new + 1] = { cost = cost, terms = terms, n = n } end
    new.count = new.count + n
  end
end
if ARGV[5] ~= '' then
  local capacity, depth = shape.capacity and occupancy.limit(shape, 0), occupancy.taken(base, shape, now) + new.count
  local g, names = queue_groups.open(base, shape, now), cjson.decode(ARGV[5])
  if group_share.may_refuse(g, names, highest, capacity, depth) then return { 1, {}, 2 } end
end
-- Each job's options decide which others it may replace.
if new.count <= MOST_DROPPED then
  local few = { count = new.count }
  for _, job in ipairs(new) do
    for _ = 1, job.n do few[#few + 1] = { cost = job.cost, terms = job.terms } end
  end
  new = few
end
local refusal, gone = admission.refusal(base, shape, now, new, new.count <= MOST_DROPPED and overflow.choose)
if refusal then return refusal end
if gone then overflow.drop(base, shape, gone, now) end
wake.touched()
if not new[1] or not shape.capacity then return { 1, {}, 0 } end
claims.set(key, base, ARGV[2], new.count, now, tonumber(ARGV[4]))
return { 1, {}, 1 }
