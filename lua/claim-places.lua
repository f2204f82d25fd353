--[[
  Claims places for jobs that come in several parts (a large bulk), or gives back what is left of a claim.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  born of the shape that the caller knows, '' if none
    [2]  its rev
    [3]  id of the claim: claiming with it again changes nothing
    [4]  places wanted; 0 gives back what is left
    [5]  lease, ms
  Returns the answer of lib/admission.
]]
--- @include "lib/admission"
--- @include "lib/claims"
local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
local shape = shape_load(key, base, now)
local wanted = tonumber(ARGV[4])
if wanted == 0 then
  claims_use(key, base, ARGV[3], math.huge)
  return { 1, {} }
end
if shape_lost(shape, ARGV[1], ARGV[2]) then return { -1, {} } end
if not shape then return { 1, {} } end
local refusal = redis.call('HEXISTS', claims_key(base), ARGV[3]) == 0 and admission_refusal(base, shape, now, wanted)
if refusal then return refusal end
claims_add(key, base, ARGV[3], wanted, now, tonumber(ARGV[5]))
return { 1, {} }
