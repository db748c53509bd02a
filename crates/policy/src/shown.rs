//! A request as text, for whoever asks why.

use model::Untrusted;

use crate::load::Policies;
use crate::request::{self, Request, RequestError};

/// The request that Cedar is asked, as its parts are written in policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownRequest {
    /// `Agent::"NAME"`
    pub principal: String,
    pub action: String,
    pub resource: String,
    /// The resource's attributes, in Cedar's JSON form.
    pub resource_attributes: String,
    /// The context, in Cedar's JSON form.
    pub context: String,
}

impl Policies {
    /// The request as [`Policies::decide`] asks it, or as it is asked once a person approved
    /// exactly this call. `None` for a tool that the policies do not know.
    ///
    /// # Errors
    /// [`RequestError`]: no request can be made, and the call is denied.
    pub fn show(
        &self,
        request: &Request<'_>,
        as_if_approved: bool,
    ) -> Result<Option<ShownRequest>, RequestError> {
        let name = request::subject_name(request.descriptor);
        let Some(subject) = self.words.subjects.get(name) else {
            return Ok(None);
        };
        let approved = match as_if_approved {
            true => Some(request.call_sha256),
            false => request.approval.map(|approval| approval.approved_sha256),
        };
        let schema = self.validator.schema();
        let built = request::build(request, subject, &self.words.agent, approved, schema)?;
        let written = |uid: Option<&cedar_policy::EntityUid>| {
            uid.map_or_else(String::new, |uid| Untrusted::new(uid.to_string()).escaped())
        };
        let resource = built.request.resource();
        let resource = resource.and_then(|uid| built.entities.get(uid));
        let resource = resource.and_then(|entity| entity.to_json_value().ok());
        let attributes = resource.as_ref().and_then(|it| it.get("attrs"));
        let context = built.request.context();
        let context = context.and_then(|context| context.to_json_value().ok());
        Ok(Some(ShownRequest {
            principal: written(built.request.principal()),
            action: written(built.request.action()),
            resource: written(built.request.resource()),
            resource_attributes: attributes.map_or_else(String::new, ToString::to_string),
            context: context.map_or_else(String::new, |context| context.to_string()),
        }))
    }
}
